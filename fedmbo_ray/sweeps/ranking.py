"""A sweep's trials in order of merit."""

from typing import NamedTuple

from rich.table import Table

from fedmbo_ray.sweeps.config import TuneSection
from fedmbo_ray.sweeps.dimensions import Point, label
from fedmbo_ray.sweeps.folder import SweepFolder, TrialFolder


class Standing(NamedTuple):
    """What there is to say of a trial."""

    name: str
    point: Point
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
