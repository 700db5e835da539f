"""The variance of every hypergradient estimator at one point, against n; and whether its mean is right."""

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import t as student

from fedmbo_ray.analysis.claims import Claim, judged
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy, RecordedTrial
from fedmbo_ray.analysis.series import Series, loglog, plot, series, values_of
from fedmbo_ray.analysis.style import panels

SWEEPS = ("variance", "frozen")
N, NAME = "clients.cohort_size", "algorithm.hypergradient.name"
LABELS = {"phe": "PHE", "phe_sum": "PHE, whole sum", "ihgp": "IHGP", "ihgp_sum": "IHGP, whole sum"}


def all_series(study: RecordedStudy) -> dict[str, Series]:
    trials = study.sweeps["variance"]
    return {
        name: series(trials, N, "estimate_variance", LABELS.get(name, name), algorithm__hypergradient__name=name)
        for name in map(str, values_of(trials, NAME))
    }


def bias_p(trial: RecordedTrial, expected: list[float]) -> float:
    """How likely means over seeds are as far from the expected ones, coordinate by coordinate (Bonferroni).

    nan where it can't be told.
    """
    if not expected or len(trial.seeds) < 2:
        return np.nan
    found = np.stack([trial.lasts(f"estimate_{i}") for i in range(len(expected))], axis=1)
    errors = found.std(0, ddof=1) / len(found) ** 0.5
    t = np.abs(found.mean(0) - expected) / errors
    return float(np.minimum(1.0, len(t) * (2 * student.sf(t, len(found) - 1)).min()))


def expected_mean(study: RecordedStudy) -> list[float]:
    """E h at the point, the same for every estimator with a Neumann series of as many terms; empty if none is known."""
    return max((vector(trial, "estimate") for trial in study.sweeps["variance"]), key=len)


def vector(trial: RecordedTrial, name: str) -> list[float]:
    """The coordinates of what theory says."""
    found: list[float] = []
    while not np.isnan(value := trial.predicted(f"{name}_{len(found)}")):
        found.append(value)
    return found


def smallest_of(p_values: list[float]) -> float:
    """Of as many tests (Bonferroni); nan if one of them is."""
    return float(np.minimum(1.0, len(p_values) * np.min(p_values)))


def claims(study: RecordedStudy) -> list[Claim]:
    found, expected = all_series(study), expected_mean(study)
    phe = [trial for trial in study.sweeps["variance"] if trial.param(NAME) == "phe"]
    smallest = smallest_of([bias_p(trial, expected) for trial in phe])
    frozen = bias_p(study.sweeps["frozen"][0], expected)
    enough = found["phe"].enough()
    said = [
        found["phe"].slope_claim("the variance of PHE falls like 1/n", -1.05, -0.95, enough),
        Claim(
            "PHE has the mean that it should have",
            "p ≥ 0.001 for means over seeds this far from the exact one",
            f"p = {smallest:.2g}",
            judged(smallest >= 0.001, True, smallest),
            p=smallest,
        ),
        Claim(
            "control: columns that keep their client are found out",
            "p < 0.001 in the same test",
            f"p = {frozen:.2g}",
            judged(frozen < 0.001, len(study.sweeps["frozen"][0].seeds) >= 16, frozen),
            p=frozen,
        ),
    ]
    for each in found.values():
        said.append(each.ratio_claim(f"the variance of {each.label} is as predicted", each.enough()))
    if "ihgp" in found:
        ihgp = found["ihgp"]
        first, last = ihgp.means[0], ihgp.means[-1]
        said.append(
            Claim(
                "the variance of IHGP has a floor that clients don't average out",
                "at the largest n more than a quarter of that at the smallest",
                f"{last:.3g} at n = {ihgp.sizes[-1]}, {first:.3g} at n = {ihgp.sizes[0]}",
                judged(last > first / 4, ihgp.enough()),
            )
        )
    return said


def draw(study: RecordedStudy) -> Figure:
    figure, (axis,) = panels(1)
    for number, each in enumerate(all_series(study).values()):
        plot(axis, each, number, f"{each.label}: slope {each.slope.value:.2f}")
    loglog(axis, "n, clients per communication", "variance of the estimate")
    return figure


def caption(study: RecordedStudy) -> str:
    return (
        "Variance of the hypergradient estimators at one point of the quadratic against n, with 95 % bootstrap "
        "intervals over seeds. Dashed: exact second moments. PHE draws a depth for every column, IHGP "
        "one for all: its variance stops falling."
    )
