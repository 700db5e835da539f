"""Runs a sweep's trials on Ray Tune. Their state is in the sweep's folder, so a new start continues them."""

import logging
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ray import tune
from ray.tune import Callback
from rich.console import Console

from fedmbo_ray.backends.ray.health import RayHealth, ray_watched
from fedmbo_ray.core import errors
from fedmbo_ray.core.compat import trials_need_no_environment
from fedmbo_ray.core.interruptions import at_stake, deferred
from fedmbo_ray.core.process_state import environment_with
from fedmbo_ray.core.scratch import scratch_folder
from fedmbo_ray.runs.driver import in_cluster, start_ray
from fedmbo_ray.runs.ray_session import ray_session
from fedmbo_ray.sweeps.folder import SweepFolder, numbered
from fedmbo_ray.sweeps.leaving import Leaving
from fedmbo_ray.sweeps.progress import WAITING, SweepProgress
from fedmbo_ray.sweeps.remote_folder import Home, home_of
from fedmbo_ray.sweeps.rung_by_rung import RungByRung, UnderWay
from fedmbo_ray.sweeps.rungs import going_on
from fedmbo_ray.sweeps.schedulers import NO_END
from fedmbo_ray.sweeps.schema import SweepPlan
from fedmbo_ray.sweeps.space import LISTS, Dimension, SweepPoint
from fedmbo_ray.sweeps.trial import TrialConfig, run_trial, trial_name

if TYPE_CHECKING:
    from ray.tune.experiment import Trial
    from ray.tune.search import Searcher
    from ray.tune.search.sample import Domain

    from fedmbo_ray.sweeps.space import Space

Trials = list["Trial"]
Result = dict[str, float]

QUIET = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # a trial that stops as it starts has no result
}
AT_ONCE = {"TUNE_MAX_PENDING_TRIALS_PG": "200"}  # Tune's own value when it gets all points beforehand


def run_trials(sweep: SweepPlan, folder: SweepFolder, console: Console) -> None:
    """Run what is left of a sweep; returns when every trial has ended, or its time is over."""
    known = sweep.points()
    waiting = None if known is None else left(sweep, folder, known)
    total = sweep.tune.samples if known is None else len(known)
    if waiting == {} or (known is None and not remaining(sweep, folder)):
        return
    quiet = environment_with(QUIET | (AT_ONCE if sweep.tune.scheduler.waits else {}))
    with at_stake(), folder.stoppable(), ray_session(), quiet:
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # failures are reported here, in one line
        start_ray()
        with (
            ray_watched() as health,
            workspace_of(sweep, folder) as workspace,
            closing(home_of(folder)) as home,
            SweepProgress(sweep, folder, total, console) as progress,
            trials_need_no_environment(),
            deferred() as asked,
        ):
            try:
                tuner(sweep, folder, home, waiting, workspace, progress, asked, health).fit()
            except RayDied as died:
                raise died.reason from None


class RayDied(BaseException):
    """No `Exception`: after one, Tune would clean up with calls that a dead Ray never answers."""

    def __init__(self, reason: errors.RunStopped) -> None:
        self.reason = reason


@contextmanager
def workspace_of(sweep: SweepPlan, folder: SweepFolder) -> Iterator[str]:
    """A folder for what Tune writes, removed at the end.

    What trials hand to each other must be where all see it: in a cluster, on the storage that the sweep is on.
    """
    shared = sweep.tune.scheduler.copies and in_cluster()
    path = tempfile.mkdtemp(prefix="fedmbo-tune-", dir=folder.path) if shared else str(scratch_folder())
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def left(sweep: SweepPlan, folder: SweepFolder, points: list[SweepPoint]) -> dict[int, SweepPoint]:
    """The points to run now, by number; with a scheduler that compares trials, also those that have ended."""
    if sweep.tune.scheduler.waits:
        return {number: points[number] for number in going_on(sweep, folder, points)[0]}
    trials = [folder.trial(numbered(number)) for number in range(len(points))]
    if sweep.tune.scheduler.copies:  # its trials change their points
        points = [trial.point or point for trial, point in zip(trials, points, strict=True)]
    done = [trial.done for trial in trials]
    everything = not all(done) and sweep.tune.scheduler.compares
    return {number: point for number, point in enumerate(points) if everything or not done[number]}


def remaining(sweep: SweepPlan, folder: SweepFolder) -> int:
    """How many trials are left for a search that proposes points."""
    return sweep.tune.samples - sum(trial.done for trial in folder.trials())


def tuner(
    sweep: SweepPlan,
    folder: SweepFolder,
    home: Home,
    waiting: dict[int, SweepPoint] | None,
    workspace: str,
    progress: SweepProgress,
    asked: Callable[[], bool],
    health: RayHealth,
) -> tune.Tuner:
    """The tuner of a sweep; once `asked` is true, it ends early with a KeyboardInterrupt."""
    section, by_rung = sweep.tune, RungByRung(sweep, folder, progress) if sweep.tune.scheduler.waits else None
    listed = waiting if by_rung is None else None
    numbers = None if listed is None else list(listed)
    observer = Observer(sweep, folder, progress, numbers, asked, health)
    settings = {"plain": sweep.plain(), "home": home, "numbers": numbers}
    return tune.Tuner(
        tune.with_resources(tune.with_parameters(run_trial, **settings), lambda config: group(sweep, config)),
        param_space={} if listed is None else {"point": tune.grid_search(list(listed.values()))},
        tune_config=tune.TuneConfig(
            metric="score",
            mode=section.mode,
            search_alg=by_rung or proposer(sweep, folder),
            scheduler=section.scheduler.make(space(sweep), sweep.rounds or NO_END),
            num_samples=1 if listed is not None else -1 if by_rung is not None else section.samples,
            max_concurrent_trials=section.concurrency,
            time_budget_s=section.time_budget,
            reuse_actors=not section.scheduler.copies,  # a process that is reused would hold the trial's folder
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=workspace,
            failure_config=tune.FailureConfig(max_failures=section.retries),
            callbacks=[observer, *([UnderWay(by_rung)] if by_rung else []), Leaving(folder, asked)],
            verbose=0,
        ),
    )


def group(sweep: SweepPlan, config: TrialConfig) -> tune.PlacementGroupFactory:
    return tune.PlacementGroupFactory(sweep.bundles(sweep.config(config["point"])), strategy="PACK")


def space(sweep: SweepPlan) -> "Space":
    """The dimensions in the form that Ray Tune uses."""
    return {"point": {each.path: domain(each) for each in sweep.dims}}


def domain(dim: Dimension) -> "Domain":
    return tune.choice(list(dim.values)) if dim.kind in LISTS else getattr(tune, dim.kind)(*dim.values)


def proposer(sweep: SweepPlan, folder: SweepFolder) -> "Searcher | None":
    """A search that begins with the points proposed before; trials that have ended are reported again, not run."""
    known = [{f"point/{path}": value for path, value in trial.point.items()} for trial in folder.trials()]
    return sweep.tune.search.proposer(space(sweep), sweep.tune.mode, sweep.seed, known)


class Observer(Callback):
    """Notes how every trial ended, and updates the progress."""

    def __init__(
        self,
        sweep: SweepPlan,
        folder: SweepFolder,
        progress: SweepProgress,
        numbers: list[int] | None,
        asked: Callable[[], bool],
        health: RayHealth,
    ) -> None:
        self.sweep, self.folder, self.progress, self.numbers = sweep, folder, progress, numbers
        self.asked, self.health = asked, health
        self.deadline = time.monotonic() + (sweep.tune.time_budget or float("inf"))

    def __reduce__(self) -> tuple[type[Callback], tuple[()]]:
        return Callback, ()  # Tune pickles callbacks for its own restoration, which is not used here

    def on_trial_result(self, iteration: int, trials: Trials, trial: "Trial", result: Result, **info: object) -> None:
        self.progress.heard(self._name(trial), int(result["round"]), result["share"], result["score"])

    def on_trial_complete(self, iteration: int, trials: Trials, trial: "Trial", **info: object) -> None:
        self._end(trial, "stopped", "")

    def on_trial_error(self, iteration: int, trials: Trials, trial: "Trial", **info: object) -> None:
        self._end(trial, "failed", last_line(trial.error_file))

    def on_step_end(self, iteration: int, trials: Trials, **info: object) -> None:
        try:
            self.health.require()
        except errors.RunStopped as error:
            raise RayDied(error) from None
        self.progress.refresh()

    def _end(self, trial: "Trial", status: str, reason: str) -> None:
        """Note how a trial ended, unless its runs show it, it waits at a rung, or the sweep is to stop."""
        if self.asked():
            return
        folder = self.folder.trial(self._name(trial))
        if not folder.point:  # it ended before it had written its point
            folder.begin(trial.config["point"])
        waits = status == "stopped" and self.sweep.tune.scheduler.waits
        if folder.status == "running" and (status == "failed" or (not waits and time.monotonic() < self.deadline)):
            folder.end(status, reason)
        self.progress.ended(folder.name, WAITING if waits and folder.status == "running" else folder.status)

    def _name(self, trial: "Trial") -> str:
        return trial_name(trial.trial_id, trial.config, self.numbers)


def last_line(file: str | None) -> str:
    """The last line of a trial's traceback; for an error of this package, only its message."""
    try:
        lines = [line.strip() for line in Path(file or "").read_text().splitlines() if line.strip()]
    except OSError:
        return "unknown"
    return re.sub(rf"^{errors.__name__}\.\w+: ", "", lines[-1]) if lines else "unknown"
