"""The studies: which sweeps each is made of, one after the other, and the folder that they are kept in."""

import json
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from fedmbo_ray.checkpoints import write_atomically
from fedmbo_ray.federation import RunFailed
from fedmbo_ray.loading import changed, read_yaml
from fedmbo_ray.registry import ConfigError
from fedmbo_ray.sweeps.config import Sweep, SweepFields, make_sweep, read_sweep
from fedmbo_ray.sweeps.folder import SweepFolder, new_identity
from fedmbo_ray.sweeps.ranking import Standing, ranked

CONFIGS = Path(__file__).parent.parent / "tune_configs"
METHODS = ("fedmbo", "fednest", "lfednest", "adafbio", "local_bsgvrm", "fedbioacc", "simfbo", "d_soba")
LOWER = ("minibatch_sgd", "fedsvrg", "fedavg")


class StudyFolder:
    """A folder for each sweep, `scale`, and an `identity` by which MLflow knows the study."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity_file, self.scale_file = path / "identity", path / "scale"

    def begin(self, scale: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.scale_file, scale.encode())
        new_identity(self.identity_file)

    def has_study(self) -> bool:
        return self.identity_file.exists()

    @property
    def scale(self) -> str:
        return self.scale_file.read_text()

    @property
    def identity(self) -> str:
        return self.identity_file.read_text().strip()

    def sweep(self, name: str) -> SweepFolder:
        return SweepFolder(self.path / name)


class Plan:
    """What a study may use to say what its sweeps are: their files at a scale, and the results of those before."""

    def __init__(self, folder: StudyFolder, scale: str, overrides: list[str]) -> None:
        self.folder, self.scale, self.overrides = folder, scale, overrides

    def read(self, file: str) -> Sweep:
        return read_sweep(CONFIGS / f"{file}.yaml", self.overrides, self.scale)

    def with_points(self, sweep: Sweep, configs: list[dict[str, Any]], *paths: str) -> Sweep:
        """The sweep with the configs' values at some key paths, one config after the other, in place of its own."""
        zips = {path: {"zip": [value_at(each, path) for each in configs]} for path in paths}
        words = [f"{path}={json.dumps(values)}" for path, values in zips.items()]
        return make_sweep(changed(sweep.plain(), words, SweepFields))

    def best(self, name: str, *by: str) -> list[dict[str, Any]]:
        """The configs of the best points of a sweep that was run: of each combination of the keys `by`, one."""
        folder = self.folder.sweep(name)
        if not folder.has_sweep():
            raise ConfigError(f"the sweep {name} must be run before those that build on it")
        found: dict[tuple[str, ...], Standing] = {}
        sweep = make_sweep(read_yaml(folder.sweep_file))
        for trial in ranked(folder, sweep.tune):
            found.setdefault(tuple(map(str, (trial.point.get(path) for path in by))), trial)
        missing = [trial.label for trial in found.values() if trial.score is None]
        if missing or not found:
            raise RunFailed(f"no trial of {name} has a score: {', '.join(missing) or 'none was run'}")
        return [sweep.config(trial.point).resolved() for trial in sorted(found.values(), key=attrgetter("name"))]


def value_at(fields: dict[str, Any], path: str) -> Any:
    for key in path.split("."):
        fields = fields[key]
    return fields


Sweeps = Iterator[tuple[str, Sweep]]


class Study(NamedTuple):
    """A question, and the sweeps that answer it: each is run before the next is asked for."""

    question: str
    parts: tuple[str, ...]  # names of the sweeps
    sweeps: Callable[[Plan], Sweeps]


def files(question: str, *names: str) -> Study:
    """Sweeps that are known beforehand."""

    def sweeps(plan: Plan) -> Sweeps:
        for part, name in zip(parts, names, strict=True):
            yield part, plan.read(f"studies/{name}")

    parts = tuple(name.rpartition("/")[2] for name in names)
    return Study(question, parts, sweeps)


def estimators(plan: Plan) -> Sweeps:
    """Step sizes of every pair by an equal budget, then the best of each side by side."""
    for lower in LOWER:
        yield f"tuning_{lower}", plan.read(f"studies/estimators/tuning_{lower}")
    pairs = [each for lower in LOWER for each in plan.best(f"tuning_{lower}", "algorithm.hypergradient.name")]
    parts = ("algorithm.hypergradient", "algorithm.lower", "algorithm.step_size")
    yield "comparison", plan.with_points(plan.read("studies/estimators/comparison"), pairs, *parts)


def methods(plan: Plan) -> Sweeps:
    """Step sizes of every method by an equal budget, then the best of each side by side."""
    for method in METHODS:
        yield f"tuning_{method}", plan.read(f"methods/{method}")
    best = [plan.best(f"tuning_{method}")[0] for method in METHODS]
    comparison = plan.read("studies/methods/comparison")
    yield "comparison", plan.with_points(comparison, best, "algorithm", "clients.cohort_size")


LINEAR_SPEEDUP = (
    *("variance", "frozen", "speedup", "estimators", "d_soba", "other_problems"),
    *("nonconvex", "horizon", "rounds", "beyond", "mnist"),
)

STUDIES = {
    "linear_speedup": files(
        "Does FedMBO need n times fewer rounds with n times the clients per communication, and which methods do not?",
        *(f"linear_speedup/{name}" for name in LINEAR_SPEEDUP),
    ),
    "heterogeneity": files("What does it cost FedMBO that clients have different data?", "heterogeneity"),
    "clients": files("Does FedMBO learn faster in a larger federation, a tenth of it at a time?", "clients"),
    "participation": files("What does a larger share of clients per communication buy?", "participation"),
    "estimators": Study(
        "Which hypergradient estimator goes best with which lower solver?",
        (*(f"tuning_{lower}" for lower in LOWER), "comparison"),
        estimators,
    ),
    "methods": Study(
        "Which method learns most for the same communications, floats and samples?",
        (*(f"tuning_{method}" for method in METHODS), "comparison"),
        methods,
    ),
    "theory": files("Which of the paper's bounds hold as printed?", "theory/estimator", "theory/inner"),
}
