"""Data sets whose rows belong to clients: states, schools, occupations, people."""

from fedmbo_ray.data.natural import adult, chem97, exercises, fars, speeches

DATASETS = {
    "fars": fars.fars,
    "chem97": chem97.chem97,
    "chem97_schools": chem97.chem97_schools,
    "adult": adult.adult,
    "exercises": exercises.exercises,
    "speeches": speeches.speeches,
}
ABOUT = {
    "fars": fars.ABOUT,
    "chem97": chem97.ABOUT,
    "chem97_schools": chem97.ABOUT_SCHOOLS,
    "adult": adult.ABOUT,
    "exercises": exercises.ABOUT,
    "speeches": speeches.ABOUT,
}
