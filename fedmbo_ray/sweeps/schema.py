"""The typed form of a sweep: a run config with dimensions in place of values, and a section `tune`."""

import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from annotated_types import Ge
from pydantic import Field

from fedmbo_ray.backends.ray.placement import Resources
from fedmbo_ray.config.overrides import Override, changed
from fedmbo_ray.config.schema import MOST_ACTORS, Fields, RecordConfig, RunConfig, Section, Share
from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError, at, choices, quoted
from fedmbo_ray.core.io import read_yaml
from fedmbo_ray.core.settings import Count, Positive
from fedmbo_ray.runs.evaluation import EXACT
from fedmbo_ray.sweeps.scales import STANDARD
from fedmbo_ray.sweeps.schedulers import NO_END, AnyScheduler, Fifo
from fedmbo_ray.sweeps.searches import SEARCHES, AnySearch, Random
from fedmbo_ray.sweeps.space import Dimension, SweepPoint, corners, dimensions, placed, require_known

MANY = 2000  # with more points than this, a line says that they are being checked


class TuneSection(Section):
    """How a sweep searches, on what, and where it is recorded."""

    search: AnySearch = Field(default_factory=Random)
    scheduler: AnyScheduler = Field(default_factory=Fifo)
    samples: Count = 1  # draws of what is not a grid
    seeds: Count = 1  # runs of a point; its score is their mean
    metric: str = "upper_loss"  # of a record; upper_loss is on validation data, test figures are for the end
    mode: Literal["min", "max"] = "min"
    concurrency: Count | None = None  # trials at a time; None: as many as there is room for
    time_budget: Positive | None = None  # seconds for the whole sweep
    retries: Annotated[int, Ge(0)] = 2  # of a trial whose process dies or that raises
    cpus_per_trial: Share = 1.0  # of the process that runs a trial; its client actors have their own
    resources: dict[str, Positive] = Field(default_factory=dict)  # other resources of each process of a trial
    tracking_uri: str | None = None  # of MLflow; None: a file mlflow.db in the working folder
    experiment: str | None = None  # in MLflow; None: the sweep's name


class SweepFields(RunConfig):
    """The keys of a sweep file."""

    tune: TuneSection = TuneSection()
    scales: dict[str, Fields] = Field(default_factory=dict)  # key paths and their values, by --scale


class SweepPlan(NamedTuple):
    """What a sweep file says."""

    fields: Fields  # a run config with dimensions
    dims: list[Dimension]
    tune: TuneSection

    def config(self, point: SweepPoint, seed: int = 0) -> RunConfig:
        """The run of a point; of several seeds, the one with that number."""
        config = construct(RunConfig, placed(self.fields, point))
        return config.model_copy(update={"seed": config.seed + seed})

    def bundles(self, config: RunConfig) -> list[Resources]:
        """What a trial asks of a cluster: for its own process first, then for the client actors of each seed."""
        clients, besides = config.clients, self.tune.resources
        if {"CPU", "GPU"} & set(besides):
            raise ConfigError("CPU and GPU must be asked for by cpus_per_trial and clients", "tune", "resources")
        own = _asked(CPU=self.tune.cpus_per_trial) | besides
        if clients.backend == "in_process":
            return [own]
        actor = _asked(CPU=clients.cpus_per_actor, GPU=clients.gpus_per_actor) | besides
        if not actor:
            raise ConfigError("an actor in a sweep must ask for some CPU or GPU, but asks for none", "clients")
        if (count := clients.actors * self.tune.seeds) > MOST_ACTORS:
            raise ConfigError(
                f"a trial has {MOST_ACTORS} actors at most, but got actors={clients.actors} for each of "
                f"{self.tune.seeds} seeds",
                "clients",
                "actors",
            )
        return [own, *[actor] * count]

    @property
    def seed(self) -> int:
        return self.config(next(corners(self.dims))).seed

    def points(self) -> list[SweepPoint] | None:
        """The points to run, None where each depends on the scores of others."""
        with at("tune"), at("search"):
            return self.tune.search.points(self.dims, self.tune.samples, self.seed)

    def examples(self) -> list[SweepPoint]:
        """The points to run or, where they are not known, the extremes of every dimension."""
        return self.points() or list(corners(self.dims))

    @property
    def rounds(self) -> int | None:
        """The most that any point asks for; None if some point's run ends with its budget alone."""
        rounds = [self.config(point).rounds for point in corners(self.dims)]
        return None if None in rounds else max(each for each in rounds if each is not None)

    @property
    def rungs(self) -> Iterator[int]:
        """The rounds at which all trials wait for each other."""
        return self.tune.scheduler.rungs(self.rounds or NO_END)

    @property
    def length(self) -> str:
        """How long a run is, in words."""
        return f"{self.rounds} rounds" if self.rounds is not None else "as many rounds as the budget lasts"

    def plain(self) -> Fields:
        """Plain values; reading them back gives an equal sweep."""
        return {**self.fields, "tune": self.tune.model_dump(mode="json")}


def _asked(**amounts: float) -> Resources:
    return {name: amount for name, amount in amounts.items() if amount}


def read_sweep(path: Path, overrides: Sequence[Override], scale: str = STANDARD) -> SweepPlan:
    """The sweep in a YAML file, changed by `key.path=value` words; raises ConfigError for anything it can't do."""
    return make_sweep(changed(scaled(read_yaml(path), scale), overrides, SweepFields))


def scaled(fields: Fields, scale: str) -> Fields:
    """The fields with the changes that their section `scales` has for a scale."""
    scales = {STANDARD: {}, **mapping_at(fields, "scales")}
    if scale not in scales:
        raise ConfigError(f"unknown scale {quoted(scale)}; {choices(scale, list(map(str, scales)))}")
    with at("scales"):
        own = mapping_at(scales, scale)
    words: list[Override] = [(str(path).split("."), value) for path, value in own.items()]
    return changed({key: value for key, value in fields.items() if key != "scales"}, words, SweepFields)


def mapping_at(fields: Fields, key: str) -> Fields:
    """The section of this name, empty if there is none; a ConfigError if it is not a mapping."""
    found = fields.get(key)
    if not isinstance(found, dict | None):
        raise ConfigError(f"must be a mapping, but is {quoted(found)}", key)
    return found or {}


def make_sweep(fields: Fields) -> SweepPlan:
    fields = dict(fields)
    section, _ = mapping_at(fields, "tune"), fields.pop("scales", None)
    fields.pop("tune", None)
    with at("tune"):
        tune = construct(TuneSection, section)
    require_plain(fields)
    sweep = SweepPlan(fields, list(dimensions(fields)), tune)
    check(sweep)
    return sweep


def require_plain(value: object, *path: str) -> None:
    """Raise a ConfigError for a value that a sweep's file can't hold."""
    if isinstance(value, dict):
        for key, each in value.items():
            require_plain(each, *path, str(key))
    elif isinstance(value, list):
        for each in value:
            require_plain(each, *path)
    elif not isinstance(value, str | int | float | date | None):
        raise ConfigError(f"must be a number, text, a list or a mapping, as in YAML, but got {quoted(value)}", *path)


def check(sweep: SweepPlan) -> None:
    """Raise a ConfigError if some point, of those that are known or at an extreme of a dimension, is no run."""
    try:
        for point in corners(sweep.dims):
            sweep.bundles(sweep.config(point))
    except ConfigError:
        require_known(sweep.fields)
        raise
    if sweep.tune.scheduler.copies and any(each.kind == "zip" for each in sweep.dims):
        raise ConfigError("this scheduler changes values separately, so a zip is not allowed", "tune", "scheduler")
    rungs = list(sweep.rungs)
    if rungs and sweep.points() is None:
        search = SEARCHES.name_of(sweep.tune.search)
        rule = "this scheduler compares all trials with each other, so search must be grid or random"
        raise ConfigError(f"{rule}, but is {search}; asha works with every search", "tune", "scheduler")
    points = sweep.examples()
    if len(points) > MANY:
        print(f"checking {len(points)} points", file=sys.stderr, flush=True)
    for point in points:
        config = sweep.config(point)
        sweep.bundles(config)
        check_rungs(rungs, config.record, sweep.tune.metric)


def check_rungs(rungs: list[int], record: RecordConfig, metric: str) -> None:
    """Raise a ConfigError if trials would have no score at one of the rungs."""
    every = {"every": record.every, **({"exact_every": record.exact_every} if metric in EXACT else {})}
    for key, rounds in every.items():
        rung = next((rung for rung in rungs if rounds is not None and rung % rounds), None)
        if rung is not None:
            rule = f"every rung must be a multiple of record.{key}={rounds}, since trials are compared by their records"
            raise ConfigError(f"{rule}, but got round {rung}", "tune", "scheduler")
