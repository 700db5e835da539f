"""A sweep's folder: what was asked, and for every trial its point, its runs (one per seed) and how it ended.

Everything about a sweep is read from here: its progress, its result, and what is sent to MLflow.
"""

import hashlib
import json
import re
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

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
from fedmbo_ray.core.removal import remove_folder, remove_rests
from fedmbo_ray.core.timed_folders import untimed
from fedmbo_ray.runs.checkpoint import RecordChain
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.records import Record
from fedmbo_ray.sweeps.space import SweepPoint, label

DONE = ("finished", "stopped", "diverged")  # how a trial ends for good
STATUSES = (*DONE, "failed")
DIGEST = re.compile(rb"# SHA-256 of what follows: [0-9a-f]{64}")
STOP = ".stop"  # this file exists while an interrupted sweep waits for its trials to stop after the current round


class TrialFolder:
    """One trial: `point.json`, a run's folder for each seed, and `ending.json` if its runs don't show how it ended."""

    def __init__(self, path: Path, seeds: int) -> None:
        self.path, self.name, self.seeds = path, path.name, seeds
        self.point_file, self.ending_file = path / "point.json", path / "ending.json"
        self.system_file = path / "system.jsonl"

    @property
    def runs(self) -> list[RunFolder]:
        """The runs that have begun."""
        return [run for _, run in self.numbered_runs()]

    def numbered_runs(self) -> list[tuple[int, RunFolder]]:
        """The runs that have begun, each with the number of its seed."""
        return [(seed, run) for seed in range(self.seeds) if (run := self.run(seed)).path.exists()]

    def run(self, seed: int) -> RunFolder:
        return RunFolder(self.path / f"seed_{seed:03d}")

    @property
    def point(self) -> SweepPoint:
        return read_json(self.point_file) or {}

    @property
    def label(self) -> str:
        return label(self.point)

    def begin(self, point: SweepPoint) -> None:
        """Prepare the folder for a point's runs; files of another point are removed."""
        if self.path.exists() and self.point != point:
            remove_folder(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.point_file, json.dumps(point).encode())
        self.ending_file.unlink(missing_ok=True)

    def end(self, status: str, reason: str = "") -> None:
        """Note how the trial ends and, if this is final, the digests of its records."""
        ending = {"status": status, "reason": reason} | ({"records": self._digests()} if status in DONE else {})
        write_atomically(self.ending_file, json.dumps(ending).encode())

    def _digests(self) -> list[str]:
        return [RecordChain.of(run.records()).digest for run in self.runs]

    def keeps_ending(self) -> bool:
        """Whether an ending is noted and still valid: all runs that have ended have their results.

        Raises FolderDamaged if the records are no longer those with which the ending was noted.
        """
        ending = self._ending()
        if ending is not None and ending.get("records", self._digests()) != self._digests():  # 0.1 noted no digests
            raise FolderDamaged(
                f"records of {self.path} were changed after the trial had ended; put them back as they were, or remove "
                f"{self.path} to run it again"
            )
        return ending is not None and all(run.has_result() for run in self.runs if run.has_ended())

    @property
    def status(self) -> str:
        """`running` until it has ended in one of STATUSES."""
        ending = self._ending()
        if ending is not None:
            return str(ending["status"])
        statuses = [last["status"] for last in self.lasts() if "status" in last]
        if len(statuses) < self.seeds:
            return "running"
        return "diverged" if "diverged" in statuses else "finished"

    @property
    def done(self) -> bool:
        return self.status in DONE

    @property
    def reason(self) -> str:
        """Why it failed, diverged or was stopped."""
        ending = self._ending()
        if ending is not None:
            return str(ending["reason"])
        return next((str(last["reason"]) for last in self.lasts() if "reason" in last), "")

    def _ending(self) -> dict[str, Any] | None:
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
        """What its process used, record by record."""
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
        self.identity_file, self.stop_file = path / "identity", path / STOP

    def has_sweep(self) -> bool:
        return self.sweep_file.exists()

    @property
    def name(self) -> str:
        """The sweep's name, without the time at which it was begun."""
        return untimed(self.path.resolve().name) or "sweep"

    @property
    def identity(self) -> str:
        """Identifies this sweep, also after its folder has been moved."""
        return read_identity(self.identity_file)

    @contextmanager
    def claimed(self, plain: Fields) -> Iterator[None]:
        """Hold the folder for this process and write `sweep.yaml`; failed trials are set to run again."""
        with held(self.path):
            new_identity(self.identity_file, begun=self.has_sweep())
            write_atomically(self.sweep_file, with_digest(to_yaml(plain)))
            remove_rests(self.path / "trials")
            for trial in self.trials():
                if trial.status == "failed":  # MLflow must not show that it has ended
                    trial.ending_file.unlink()
            yield

    def fields(self) -> Fields:
        """What `sweep.yaml` says; raises FolderDamaged if it was changed."""
        content = self.sweep_file.read_bytes()
        first, _, rest = content.partition(b"\n")
        if DIGEST.fullmatch(first) and content != with_digest(rest):  # version 0.1 wrote no digest
            raise FolderDamaged(f"{self.sweep_file} was changed after the sweep had begun; put it back as it was")
        return read_yaml(self.sweep_file)

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """In this context, `stop_file` can be made, to tell the trials to stop; it is removed before and afterwards."""
        self.stop_file.unlink(missing_ok=True)
        try:
            yield
        finally:
            self.stop_file.unlink(missing_ok=True)

    @cached_property
    def seeds(self) -> int:
        """The number of runs of a trial."""
        tune = self.fields().get("tune")
        require_mapping(tune, f"`tune` in {self.sweep_file}", seeds=int)
        return tune["seeds"]  # type: ignore[index]

    def trial(self, name: str) -> TrialFolder:
        return TrialFolder(self.path / "trials" / name, self.seeds)

    def trials(self) -> list[TrialFolder]:
        """The trials that have begun."""
        return [trial for trial in self.begun() if trial.point_file.exists()]

    def begun(self) -> list[TrialFolder]:
        """All trials that have a folder; a trial that was killed as it started has no point yet."""
        return [self.trial(each.name) for each in sorted((self.path / "trials").glob("[!.]*/"))]


def with_digest(content: bytes) -> bytes:
    """A YAML file whose first line, a comment, has the SHA-256 of what follows, so that changes are noticed."""
    return b"# SHA-256 of what follows: " + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def name_of_point(point: SweepPoint) -> str:
    """The name of a trial whose point has no number: a digest of the point."""
    return hashlib.sha256(json.dumps(point, sort_keys=True).encode()).hexdigest()[:10]


def numbered(number: int) -> str:
    """The name of a trial whose point has a number."""
    return f"{number:05d}"


def means(runs: list[list[Record]]) -> list[Record]:
    """Record by record, the means of the numbers; a figure that some run does not have is left out.

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
