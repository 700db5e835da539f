"""What MLflow has of a study: its sweeps, their trials, and the run of every seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmbo_ray.analysis.statistics import Values
from fedmbo_ray.tracking.connection import make_client, require_file

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

Param = Any  # a number or a text: who asks for a parameter knows which


@dataclass(frozen=True)
class RecordedRun:
    """One run of MLflow's, with its last figures."""

    client: "MlflowClient"
    run: "MlflowRun"

    @property
    def run_id(self) -> str:
        return self.run.info.run_id

    @property
    def name(self) -> str:
        return self.run.info.run_name

    @property
    def tags(self) -> dict[str, str]:
        return self.run.data.tags

    @property
    def parent(self) -> str | None:
        return self.tags.get("mlflow.parentRunId")

    def param(self, path: str) -> Param:
        """A number where it is one."""
        text = self.run.data.params[path]
        try:
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        except ValueError:
            return text

    def last(self, metric: str) -> float:
        return self.run.data.metrics.get(metric, np.nan)

    def history(self, metric: str) -> dict[int, float]:
        """By round."""
        return {each.step: each.value for each in self.client.get_metric_history(self.run_id, metric)}


@dataclass(frozen=True)
class RecordedTrial:
    """A point, and its run for each seed."""

    run: RecordedRun
    seeds: list[RecordedRun]

    def param(self, path: str) -> Param:
        return self.run.param(path)

    @property
    def status(self) -> str:
        return self.run.tags.get("status", "running")

    def lasts(self, metric: str) -> Values:
        """Of every seed."""
        return np.array([seed.last(metric) for seed in self.seeds])

    def predicted(self, metric: str) -> float:
        """nan if theory has nothing to say."""
        return self.run.last(f"predicted_{metric}")

    def curves(self, x: str, y: str) -> list[tuple[Values, Values]]:
        """Of every seed one figure against another, record by record."""
        return [curve(seed, x, y) for seed in self.seeds]


def curve(run: RecordedRun, x: str, y: str) -> tuple[Values, Values]:
    xs, ys = run.history(x), run.history(y)
    steps = sorted(xs.keys() & ys.keys())
    return np.array([xs[step] for step in steps]), np.array([ys[step] for step in steps])


@dataclass(frozen=True)
class RecordedStudy:
    """A study's own run, and the trials of each of its sweeps."""

    run: RecordedRun
    sweeps: dict[str, list[RecordedTrial]]
    going_on: frozenset[str] = frozenset()  # the sweeps that have not come to their end

    def lacking(self, sweep: str, endings: tuple[str, ...]) -> str | None:
        """Why nothing can be said from a sweep, whose trials may end in some ways; None if it can."""
        trials = self.sweeps.get(sweep)
        if not trials or sweep in self.going_on:
            return f"{sweep} was not run to its end"
        others = sorted({trial.status for trial in trials if trial.status not in endings})
        if others or all(trial.status != "finished" for trial in trials):
            return f"some trials of {sweep} are {', '.join(others) or 'diverged'}"
        return None

    @property
    def name(self) -> str:
        return self.run.tags["study"]

    @property
    def scale(self) -> str:
        return self.run.tags["scale"]

    @property
    def seeds(self) -> int:
        """The most that any trial has."""
        return max((len(trial.seeds) for trials in self.sweeps.values() for trial in trials), default=0)


class Store:
    """The studies that a tracking server, or file, has."""

    def __init__(self, uri: str) -> None:
        require_file(uri)
        self.uri, self.client = uri, make_client(uri)

    @cached_property
    def names(self) -> dict[str, str]:
        """Experiments by name."""
        return {each.name: each.experiment_id for each in self.client.search_experiments()}

    def search(self, name: str, condition: str) -> Iterator[RecordedRun]:
        token = None
        while True:
            found = self.client.search_runs(
                [self.names[name]], condition, max_results=1000, page_token=token, order_by=["attributes.start_time"]
            )
            yield from (RecordedRun(self.client, run) for run in found)
            token = found.token
            if not token:
                return

    def identities(self, name: str, scale: str | None = None) -> list[str]:
        """Of the studies of this name, the newest last; those that are not concluded before all others."""
        if name not in self.names:
            return []
        condition = "tags.`fedmbo.kind` = 'study'" + (f" and tags.scale = '{scale}'" if scale else "")
        found = sorted(self.search(name, condition), key=lambda run: "verdict" in run.tags)
        return [run.tags["fedmbo.study"] for run in found]

    def study(self, name: str, identity: str) -> RecordedStudy:
        runs = list(self.search(name, f"tags.`fedmbo.study` = '{identity}'"))
        below: dict[str | None, list[RecordedRun]] = {}
        for run in runs:
            below.setdefault(run.parent, []).append(run)
        top = next(run for run in runs if run.tags.get("fedmbo.kind") == "study")
        sweeps = {
            sweep.name: [
                RecordedTrial(trial, by_seed(below.get(trial.run_id, [])) or [trial])
                for trial in ordered(below.get(sweep.run_id))
            ]
            for sweep in below.get(top.run_id, [])
        }
        going_on = {sweep.name for sweep in below.get(top.run_id, []) if sweep.run.info.status != "FINISHED"}
        return RecordedStudy(top, sweeps, frozenset(going_on))


def by_seed(runs: list[RecordedRun]) -> list[RecordedRun]:
    return sorted(runs, key=lambda run: int(run.tags["seed"]))


def ordered(runs: list[RecordedRun] | None) -> list[RecordedRun]:
    return sorted(runs or [], key=lambda run: run.tags["fedmbo.key"])
