"""The trials of a sweep with rungs, in the order in which Ray Tune is to run them."""

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
    """Proposes the trials that are to come to a rung and, when all have done so, those that go on.

    To Ray Tune, each way to a rung is a trial that runs to its end. So a trial that waits takes no room; it goes on
    from its folder, wherever there is room then.
    """

    def __init__(self, sweep: SweepPlan, folder: SweepFolder, progress: SweepProgress) -> None:
        super().__init__()
        self.sweep, self.folder, self.progress = sweep, folder, progress
        self.points = sweep.points() or []
        self.to_run: list[TrialConfig] = []
        self.under_way, self.limit = 0, math.inf  # how many that were proposed have not ended, and may be so at a time

    def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
        return Searcher, ()  # Tune keeps a copy for a restoration of its own, which is not used

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
        return True  # Tune need not see to it

    def _ready(self, number: int, until: int | None) -> "TrialConfig":
        trial, point = self.folder.trial(numbered(number)), self.points[number]
        if trial.status == "stopped":  # before a better one had failed
            trial.begin(point)
        return {"point": point, "number": number, "until": until}

    def on_trial_complete(self, trial_id: str, result: dict[str, object] | None = None, error: bool = False) -> None:
        """Not called for every trial: not if a process could not be used again. So `UnderWay` looks at all."""


class UnderWay(Callback):
    """Counts the trials that have not ended."""

    def __init__(self, searcher: RungByRung) -> None:
        self.searcher = searcher

    def __reduce__(self) -> tuple[type[Callback], tuple[()]]:
        return Callback, ()  # as above

    def on_step_end(self, iteration: int, trials: "list[Trial]", **info: object) -> None:
        self.searcher.under_way = sum(not trial.is_finished() for trial in trials)
