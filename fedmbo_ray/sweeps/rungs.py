"""Rungs: rounds at which all trials wait for each other, and from which the best go on.

Which trials go on depends only on the records in their folders. So the decisions are the same on any number of cores
and nodes, and after an interruption.
"""

from itertools import pairwise
from typing import NamedTuple

from fedmbo_ray.runs.records import Record
from fedmbo_ray.sweeps.folder import SweepFolder, TrialFolder, mean, numbered
from fedmbo_ray.sweeps.schema import SweepPlan
from fedmbo_ray.sweeps.space import SweepPoint


class Arrival(NamedTuple):
    """A trial that has reached a rung, or has ended before it."""

    number: int
    score: float | None  # None if it has diverged or failed, or has no such figure
    lasts: list[Record]  # the last record of each run up to the rung; none if the trial failed before it


def has_come_to(round: int, record: Record) -> bool:
    """Whether a run with this last record has reached a round, or has ended."""
    return record["round"] >= round or "status" in record


def going_on(sweep: SweepPlan, folder: SweepFolder, points: list[SweepPoint]) -> tuple[list[int], int | None]:
    """The numbers of the trials to run now, and the rung that they run to; None if they run to their end.

    All others have ended or wait. Trials that are not among the best at a rung are marked as stopped.
    """
    group = list(range(len(points)))
    for rung in sweep.rungs:
        if len(group) < 2:  # there is no other trial to wait for
            break
        found = [arrival(sweep, folder, number, points[number], rung) for number in group]
        arrivals = [each for each in found if each is not None]
        if len(arrivals) < len(group):
            return sorted(set(group) - {each.number for each in arrivals}), rung
        group = decided(sweep, folder, arrivals, rung)
    return [number for number in group if folder.trial(numbered(number)).status in ("running", "stopped")], None


def arrival(sweep: SweepPlan, folder: SweepFolder, number: int, point: SweepPoint, rung: int) -> Arrival | None:
    """A trial at a rung; None if it has not reached the rung."""
    trial = folder.trial(numbered(number))
    runs = [run.proven_records() for run in trial.runs] if trial.point == point else []
    if len(runs) == sweep.tune.seeds and all(records and has_come_to(rung, records[-1]) for records in runs):
        lasts = [[record for record in records if record["round"] <= rung][-1] for records in runs]
        diverged = any(last.get("status") == "diverged" for last in lasts)
        return Arrival(number, None if diverged else mean(lasts).get(sweep.tune.metric), lasts)
    return Arrival(number, None, []) if trial.status == "failed" else None


def decided(sweep: SweepPlan, folder: SweepFolder, arrivals: list[Arrival], rung: int) -> list[int]:
    """The numbers of the trials that go on from a rung; the others are marked as stopped."""
    order = in_order(arrivals, sweep.tune.mode)
    best = [each for each in order[: sweep.tune.scheduler.places(len(order))] if each.score is not None]
    for place, each in enumerate(order[len(best) :], start=len(best) + 1):
        stop(folder.trial(numbered(each.number)), each, f"place {place} of {len(order)} in round {rung}", rung)
    return sorted(each.number for each in best)


def in_order(arrivals: list[Arrival], mode: str) -> list[Arrival]:
    """The best first, equal scores by number; trials without a score last."""
    sign = 1 if mode == "min" else -1
    return sorted(arrivals, key=lambda each: (each.score is None, sign * (each.score or 0.0), each.number))


def stop(trial: TrialFolder, arrival: Arrival, place: str, rung: int) -> None:
    """End a trial that does not go on, unless its runs have ended by themselves.

    It may have gone on before, while a better one had failed: what it did after the rung is removed.
    """
    if all("status" in last for last in arrival.lasts):
        return
    reason = next((str(last["reason"]) for last in arrival.lasts if last.get("status") == "diverged"), None)
    ending = ("stopped", place) if reason is None else ("diverged", reason)
    if (trial.status, trial.reason) != ending:
        trial.ending_file.unlink(missing_ok=True)  # it has the digests of all records
        for run in trial.runs:
            run.cut(rung)
        trial.end(*ending)


def stages(sweep: SweepPlan, trials: int) -> list[tuple[int, int]]:
    """For each rung and the end: the round, and at most how many trials run to it; empty if only a budget ends them."""
    if sweep.rounds is None:
        return []
    found = []
    for rung in sweep.rungs:
        if trials < 2:
            break
        found.append((rung, trials))
        trials = sweep.tune.scheduler.places(trials)
    return [*found, (sweep.rounds, trials)]


def rounds_in_all(sweep: SweepPlan, trials: int) -> int | None:
    """The most rounds that a number of trials can run in total; None if only their budget ends them."""
    found = stages(sweep, trials)
    pairs = pairwise([(0, trials), *found])
    return sum(count * (until - start) for (start, _), (until, count) in pairs) if found else None
