"""A sweep's folder: what was asked, and for every trial its point, its runs (one per seed) and how it ended.

Everything about a sweep is read from here: its progress, its result, and what MLflow is told.
"""

import json
import shutil
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from fedmbo_ray.config.schema import Fields
from fedmbo_ray.core.errors import FolderDamaged, quoted
from fedmbo_ray.core.io import (
    held,
    new_identity,
    read_identity,
    read_json,
    read_lines,
    read_yaml,
    require_mapping,
    to_yaml,
    write_atomically,
)
from fedmbo_ray.core.timed_folders import untimed
from fedmbo_ray.runs.folder import Record, RunFolder
from fedmbo_ray.sweeps.space import SweepPoint, label

DONE = ("finished", "stopped", "diverged")  # how a trial ends for good
STATUSES = (*DONE, "failed")
STOP = ".stop"  # there while the trials of an interrupted sweep are to stop after the round that is under way


class TrialFolder:
    """One trial: `point.json`, a run's folder for each seed, and `ending.json` where its runs don't tell it."""

    def __init__(self, path: Path, seeds: int) -> None:
        self.path, self.name, self.seeds = path, path.name, seeds
        self.point_file, self.ending_file = path / "point.json", path / "ending.json"
        self.system_file = path / "system.jsonl"

    @property
    def runs(self) -> list[RunFolder]:
        return [RunFolder(each) for each in sorted(self.path.glob("seed_*"))]

    def run(self, seed: int) -> RunFolder:
        return RunFolder(self.path / f"seed_{seed:03d}")

    @property
    def point(self) -> SweepPoint:
        return read_json(self.point_file) or {}

    @property
    def label(self) -> str:
        return label(self.point)

    def begin(self, point: SweepPoint) -> None:
        """Make room for a point's runs; what another point has left here is cleared away."""
        if self.path.exists() and self.point != point:
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.point_file, json.dumps(point).encode())
        self.ending_file.unlink(missing_ok=True)

    def end(self, status: str, reason: str = "") -> None:
        write_atomically(self.ending_file, json.dumps({"status": status, "reason": reason}).encode())

    @property
    def status(self) -> str:
        """`running` until it has ended in one of STATUSES."""
        ending = self._ending()
        if ending is not None:
            return ending["status"]
        statuses = [last["status"] for last in self.lasts() if "status" in last]
        if len(statuses) < self.seeds:
            return "running"
        return "diverged" if "diverged" in statuses else "finished"

    @property
    def done(self) -> bool:
        return self.status in DONE

    @property
    def reason(self) -> str:
        """Why it failed or diverged."""
        ending = self._ending()
        if ending is not None:
            return ending["reason"]
        return next((str(last["reason"]) for last in self.lasts() if "reason" in last), "")

    def _ending(self) -> dict[str, str] | None:
        ending = read_json(self.ending_file, status=str, reason=str)
        if ending is not None and ending["status"] not in STATUSES:
            raise FolderDamaged(
                f"{self.ending_file} is damaged: status must be one of {', '.join(STATUSES)}, but is "
                f"{quoted(ending['status'])}"
            )
        return ending

    def lasts(self) -> list[Record]:
        """The last record of each run that has one."""
        return [records[-1] for records in (run.records() for run in self.runs) if records]

    def system(self) -> list[Record]:
        """What its process took, record by record."""
        return read_lines(self.system_file)

    def note_system(self, figures: Record) -> None:
        with self.system_file.open("a") as file:
            file.write(json.dumps(figures) + "\n")

    def records(self) -> list[Record]:
        """The means over seeds, of the rounds that all have recorded."""
        return means([run.records() for run in self.runs]) if len(self.runs) == self.seeds else []


class SweepFolder:
    """`sweep.yaml`, `trials/`, `best.yaml`, and an `identity` by which MLflow knows it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sweep_file, self.best_file = path / "sweep.yaml", path / "best.yaml"
        self.identity_file = path / "identity"
        self.stop_file = path / STOP

    def has_sweep(self) -> bool:
        return self.sweep_file.exists()

    @property
    def name(self) -> str:
        """Of the sweep's kind: without the time at which it was begun."""
        return untimed(self.path.resolve().name) or "sweep"

    @property
    def identity(self) -> str:
        """Of this sweep among all others, wherever its folder is moved to."""
        return read_identity(self.identity_file)

    @contextmanager
    def claimed(self, plain: Fields) -> Iterator[None]:
        """Held by the one process that works here, the sweep written down; what has failed is to be run again."""
        with held(self.path):
            new_identity(self.identity_file, begun=self.has_sweep())
            write_atomically(self.sweep_file, to_yaml(plain))
            for trial in self.trials():
                if trial.status == "failed":  # MLflow must not be told that it has ended
                    trial.ending_file.unlink()
            yield

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """In this context, `stop_file` tells the trials to stop; neither before it nor afterwards."""
        self.stop_file.unlink(missing_ok=True)
        try:
            yield
        finally:
            self.stop_file.unlink(missing_ok=True)

    @cached_property
    def seeds(self) -> int:
        """How many runs a trial is to have."""
        tune = read_yaml(self.sweep_file).get("tune")
        require_mapping(tune, f"`tune` in {self.sweep_file}", seeds=int)
        return tune["seeds"]  # type: ignore[index]

    def trial(self, name: str) -> TrialFolder:
        return TrialFolder(self.path / "trials" / name, self.seeds)

    def trials(self) -> list[TrialFolder]:
        """Those that have begun."""
        return [self.trial(each.parent.name) for each in sorted((self.path / "trials").glob("*/point.json"))]


def numbered(number: int) -> str:
    """The name of a trial whose point is known by its number."""
    return f"{number:05d}"


def means(runs: list[list[Record]]) -> list[Record]:
    """Record by record, the mean of what is a number; a figure that some run does not have is left out.

    Runs that a budget ends do so in different rounds: the means of their last records come last.
    """
    common = [dict(zip((record["round"] for record in records), records, strict=True)) for records in runs]
    rounds = sorted(set.intersection(*map(set, common))) if common else []
    found = [mean([records[round] for records in common]) for round in rounds]
    lasts = [records[-1] for records in runs if records and records[-1].get("status") == "finished"]
    end = max((last["round"] for last in lasts), default=0)
    if len(lasts) == len(runs) and end not in rounds:
        found.append(mean(lasts) | {"round": end})
    return found


def mean(records: list[Record]) -> Record:
    numbers = [key for key in records[0] if all(isinstance(record.get(key), int | float) for record in records)]
    return {key: statistics.fmean(record[key] for record in records) for key in numbers} | {
        "round": records[0]["round"]
    }
