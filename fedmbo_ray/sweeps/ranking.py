"""A sweep's trials in order of merit, and the best of them."""

import math
import sys
from typing import NamedTuple

from rich.table import Table

from fedmbo_ray.core.io import to_yaml, write_atomically
from fedmbo_ray.sweeps.folder import SweepFolder, TrialFolder
from fedmbo_ray.sweeps.schema import SweepPlan, TuneSection
from fedmbo_ray.sweeps.space import SweepPoint, label


class Standing(NamedTuple):
    """What there is to say of a trial."""

    name: str
    point: SweepPoint
    status: str
    reason: str
    round: int
    score: float | None  # of its last record; None if it has none, or has diverged or failed

    @property
    def label(self) -> str:
        return label(self.point)


def standing(trial: TrialFolder, metric: str) -> Standing:
    records, status = trial.records(), trial.status
    last = records[-1] if records else {}
    score = last.get(metric) if status not in ("diverged", "failed") else None
    return Standing(trial.name, trial.point, status, trial.reason, int(last.get("round", 0)), score)


def ranked(folder: SweepFolder, tune: TuneSection) -> list[Standing]:
    """The best first: trials that ran to their end before those that were stopped on the way, which got less time."""
    sign = 1 if tune.mode == "min" else -1
    trials = [standing(trial, tune.metric) for trial in folder.trials()]

    def order(trial: Standing) -> tuple[bool, bool, float]:
        return trial.score is None, trial.status != "finished", sign * (trial.score or 0.0)

    return sorted(trials, key=order)


def ranking_table(trials: list[Standing], tune: TuneSection, count: int) -> Table:
    table = Table(
        "trial", "point", tune.metric, "round", "", title=f"{min(count, len(trials))} of {len(trials)} trials"
    )
    for trial in trials[:count]:
        score = "–" if trial.score is None else f"{trial.score:.5g}"
        table.add_row(trial.name, trial.label, score, str(trial.round), trial.status)
    return table


class BestTrial(NamedTuple):
    """The best trial of a sweep, and how many there were."""

    trial: str
    point: SweepPoint
    score: float
    failed: int
    trials: int


def finish(sweep: SweepPlan, folder: SweepFolder) -> BestTrial | None:
    """Write the config of the best trial into the folder; None if no trial has a score. Says which have failed."""
    trials = ranked(folder, sweep.tune)
    failed = [each for each in trials if each.status == "failed"]
    for each in failed:
        print(f"trial {each.name} ({each.label}) failed: {each.reason}", file=sys.stderr)
    if not trials or trials[0].score is None:
        return None
    best = trials[0]
    write_atomically(folder.best_file, to_yaml(sweep.config(best.point).resolved()))
    return BestTrial(best.name, best.point, trials[0].score, len(failed), len(trials))


def seconds_of(folder: SweepFolder) -> float:
    """The processor time of all runs together; of those that did not measure it, the time that passed."""
    lasts = [last for trial in folder.trials() for last in trial.lasts()]
    return math.fsum(last["cpu_seconds"] if "cpu_seconds" in last else last["wall_seconds"] for last in lasts)
