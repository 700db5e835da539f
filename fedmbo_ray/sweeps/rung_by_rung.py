"""Gives Ray Tune the trials of a sweep with rungs, in the right order."""

import math
from typing import TYPE_CHECKING

from ray.tune import Callback
from ray.tune.search import Searcher

from fedmbo_ray.sweeps.folder import SweepFolder, numbered
from fedmbo_ray.sweeps.progress import SweepProgress
from fedmbo_ray.sweeps.rungs import going_on
from fedmbo_ray.sweeps.schema import SweepPlan

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

    from fedmbo_ray.sweeps.trial import TrialConfig


class RungByRung(Searcher):
    """Proposes the trials that are to reach a rung and, when all have reached it, those that go on.

    To Ray Tune, each stretch up to a rung is a trial that runs to its end. So a trial that waits uses no resources. It
    goes on from its folder, on any machine that has room.
    """

    def __init__(self, sweep: SweepPlan, folder: SweepFolder, progress: SweepProgress) -> None:
        super().__init__()
        self.sweep, self.folder, self.progress = sweep, folder, progress
        self.points = sweep.points() or []
        self.to_run: list[TrialConfig] = []
        self.under_way, self.limit = 0, math.inf  # proposed trials that have not ended; the most there may be

    def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
        return Searcher, ()  # Tune pickles searchers for its own restoration, which is not used here

    def suggest(self, trial_id: str) -> "TrialConfig | str | None":
        if not self.to_run and not self.under_way:
            numbers, until = going_on(self.sweep, self.folder, self.points)
            self.progress.decided()
            if not numbers:
                return Searcher.FINISHED
            self.to_run = [self._ready(number, until) for number in numbers]
        if not self.to_run or self.under_way >= self.limit:
            return None
        self.under_way += 1
        return self.to_run.pop(0)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self.limit = max_concurrent
        return True  # the limit is kept here, not by Tune

    def _ready(self, number: int, until: int | None) -> "TrialConfig":
        trial, point = self.folder.trial(numbered(number)), self.points[number]
        if trial.status == "stopped":  # it was stopped, but a better one has failed since
            trial.begin(point)
        return {"point": point, "number": number, "until": until}

    def on_trial_complete(self, trial_id: str, result: dict[str, object] | None = None, error: bool = False) -> None:
        """Tune does not call this for every trial (not if a process can't be reused), so `UnderWay` counts instead."""


class UnderWay(Callback):
    """Counts the trials that have not ended."""

    def __init__(self, searcher: RungByRung) -> None:
        self.searcher = searcher

    def __reduce__(self) -> tuple[type[Callback], tuple[()]]:
        return Callback, ()  # as above

    def on_step_end(self, iteration: int, trials: "list[Trial]", **info: object) -> None:
        self.searcher.under_way = sum(not trial.is_finished() for trial in trials)
