"""The studies: the sweeps of each, one after the other, and the folder for them."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from fedmbo_ray.config.overrides import Override, changed
from fedmbo_ray.config.schema import Fields
from fedmbo_ray.core.errors import ConfigError, RunFailed
from fedmbo_ray.core.io import SHIPPED, held, new_identity, own_folder, read_identity, read_word, write_atomically
from fedmbo_ray.studies.questions import LOWER, METHODS, QUESTIONS
from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.proof import prove
from fedmbo_ray.sweeps.ranking import Standing, ranked
from fedmbo_ray.sweeps.scales import SCALES
from fedmbo_ray.sweeps.schema import SweepFields, SweepPlan, make_sweep, read_sweep


class StudyFolder:
    """A folder for each sweep, `study` and `scale`, and an `identity` by which MLflow knows the study."""

    def __init__(self, path: Path) -> None:
        self.path, self.figures = path, path / "figures"
        self.identity_file, self.name_file, self.scale_file = path / "identity", path / "study", path / "scale"

    def begin(self, name: str, scale: str) -> None:
        begun = self.has_study()
        own_folder(self.path)
        new_identity(self.identity_file, begun)
        write_atomically(self.name_file, name.encode())
        write_atomically(self.scale_file, scale.encode())

    def has_study(self) -> bool:
        return self.scale_file.exists()

    @property
    def name(self) -> str:
        """The name of the study; folders of version 0.1 have it only in their own name."""
        if self.name_file.exists():
            return read_word(self.name_file, list(QUESTIONS))
        return self.path.resolve().name.partition("-")[0]

    @property
    def scale(self) -> str:
        return read_word(self.scale_file, SCALES)

    @property
    def identity(self) -> str:
        return read_identity(self.identity_file)

    def sweep(self, name: str) -> SweepFolder:
        return SweepFolder(self.path / name)

    def sweeps(self) -> list[SweepFolder]:
        """The sweeps that have begun."""
        return [SweepFolder(each.parent) for each in sorted(self.path.glob("*/sweep.yaml"))]


class StudyContext:
    """What a study can use to make its sweeps: their files at a scale, and the results of earlier sweeps."""

    def __init__(self, folder: StudyFolder, scale: str, overrides: Sequence[Override]) -> None:
        self.folder, self.scale, self.overrides = folder, scale, overrides

    def read(self, file: str) -> SweepPlan:
        return read_sweep(SHIPPED / f"{file}.yaml", self.overrides, self.scale)

    def with_points(self, sweep: SweepPlan, configs: list[Fields], *paths: str) -> SweepPlan:
        """The sweep with the configs' values at some key paths, one config after the other, in place of its own."""
        zips = {path: {"zip": [value_at(each, path) for each in configs]} for path in paths}
        words: list[Override] = [(path.split("."), values) for path, values in zips.items()]
        return make_sweep(changed(sweep.plain(), words, SweepFields))

    def best(self, name: str, *by: str) -> list[Fields]:
        """The configs of a finished sweep's best points, one for each combination of the keys `by`."""
        folder = self.folder.sweep(name)
        if not folder.has_sweep():
            raise ConfigError(f"the sweep {name} must be run before those that build on it")
        found: dict[tuple[str, ...], Standing] = {}
        sweep = make_sweep(folder.fields())
        with held(folder.path):
            prove(sweep, folder)
        for trial in ranked(folder, sweep.tune):
            found.setdefault(tuple(map(str, (trial.point.get(path) for path in by))), trial)
        missing = [trial.label for trial in found.values() if trial.score is None]
        if missing or not found:
            raise RunFailed(f"no trial of {name} has a score: {', '.join(missing) or 'none was run'}")
        return [sweep.config(trial.point).resolved() for trial in sorted(found.values(), key=attrgetter("name"))]


def value_at(fields: Fields, path: str) -> object:
    for key in path.split("."):
        fields = fields[key]
    return fields


PlannedSweeps = Iterator[tuple[str, SweepPlan]]
StudyPlan = Callable[[StudyContext], PlannedSweeps]  # each sweep is run before the next one is generated


def files(name: str, place: str) -> StudyPlan:
    """A study whose sweeps are known beforehand: shipped files of a folder."""

    def sweeps(context: StudyContext) -> PlannedSweeps:
        for part in QUESTIONS[name].sweeps:
            yield part, context.read(f"{place}/{part}")

    return sweeps


def estimators(context: StudyContext) -> PlannedSweeps:
    """Tune the step sizes of every pair with an equal budget, then compare the best of each."""
    for lower in LOWER:
        yield f"tuning_{lower}", context.read(f"studies/estimators/tuning_{lower}")
    pairs = [each for lower in LOWER for each in context.best(f"tuning_{lower}", "algorithm.hypergradient.name")]
    parts = ("algorithm.hypergradient", "algorithm.lower", "algorithm.step_size")
    yield "comparison", context.with_points(context.read("studies/estimators/comparison"), pairs, *parts)


def methods(context: StudyContext) -> PlannedSweeps:
    """Tune the step sizes of every method with an equal budget, then compare the best of each."""
    for method in METHODS:
        yield f"tuning_{method}", context.read(f"methods/{method}")
    best = [context.best(f"tuning_{method}")[0] for method in METHODS]
    comparison = context.read("studies/methods/comparison")
    yield "comparison", context.with_points(comparison, best, "algorithm", "clients.cohort_size")


STUDIES: dict[str, StudyPlan] = {
    "linear_speedup": files("linear_speedup", "studies/linear_speedup"),
    "heterogeneity": files("heterogeneity", "studies"),
    "clients": files("clients", "studies"),
    "participation": files("participation", "studies"),
    "estimators": estimators,
    "methods": methods,
    "theory": files("theory", "studies/theory"),
}
