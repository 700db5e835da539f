"""A sweep's trials on Ray Tune. What they have done is in the sweep's folder, so that a new start is a continuation."""

import logging
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune import Callback
from rich.console import Console

from fedmbo_ray.driver import in_cluster, start_ray
from fedmbo_ray.sweeps.config import Sweep
from fedmbo_ray.sweeps.dimensions import LISTS, Dimension, Point
from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.keeping import Home, home_of
from fedmbo_ray.sweeps.progress import SweepProgress
from fedmbo_ray.sweeps.trial import numbered, run_trial, trial_name

QUIET = {"TUNE_DISABLE_SIGINT_HANDLER": "1", "RAY_AIR_NEW_OUTPUT": "0", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}


def run_sweep(sweep: Sweep, folder: SweepFolder, console: Console) -> None:
    """Run what is left of a sweep; returns when every trial has ended, or its time is over."""
    os.environ.update(QUIET)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what fails is told by us, in one line
    known = sweep.points()
    waiting = None if known is None else left(sweep, folder, known)
    total = sweep.tune.samples if known is None else len(known)
    if waiting == {} or (known is None and not remaining(sweep, folder)):
        return
    owner = not ray.is_initialized()
    start_ray()
    workspace, home = tempfile.mkdtemp(prefix="fedmbo-tune-", dir=place_of_copies(sweep, folder)), home_of(folder)
    try:
        with SweepProgress(sweep, folder, total, console) as progress:
            tuner(sweep, folder, home, waiting, workspace, progress).fit()
    finally:
        home.close()
        if owner:
            ray.shutdown()
        shutil.rmtree(workspace, ignore_errors=True)


def left(sweep: Sweep, folder: SweepFolder, points: list[Point]) -> dict[int, Point]:
    """The points still to run, by number; a scheduler that compares trials is told of those that have ended, too."""
    trials = [folder.trial(numbered(number)) for number in range(len(points))]
    if sweep.tune.scheduler.copies:  # its trials change their points
        points = [trial.point or point for trial, point in zip(trials, points, strict=True)]
    done = [trial.done for trial in trials]
    everything = not all(done) and sweep.tune.scheduler.compares
    return {number: point for number, point in enumerate(points) if everything or not done[number]}


def remaining(sweep: Sweep, folder: SweepFolder) -> int:
    """How many trials a search that proposes points is still to run."""
    return sweep.tune.samples - sum(trial.done for trial in folder.trials())


def place_of_copies(sweep: Sweep, folder: SweepFolder) -> Path | None:
    """Where Tune keeps what trials hand to each other: in a cluster, on the storage that the sweep is on."""
    return folder.path if sweep.tune.scheduler.copies and in_cluster() else None


def tuner(
    sweep: Sweep,
    folder: SweepFolder,
    home: Home,
    waiting: dict[int, Point] | None,
    workspace: str,
    progress: SweepProgress,
) -> tune.Tuner:
    section, numbers = sweep.tune, None if waiting is None else list(waiting)
    settings = {"plain": sweep.plain(), "home": home, "numbers": numbers}
    return tune.Tuner(
        tune.with_resources(tune.with_parameters(run_trial, **settings), lambda config: group(sweep, config)),
        param_space={} if waiting is None else {"point": tune.grid_search(list(waiting.values()))},
        tune_config=tune.TuneConfig(
            metric="score",
            mode=section.mode,
            search_alg=proposer(sweep, folder),
            scheduler=section.scheduler.make(space(sweep), sweep.rounds),
            num_samples=section.samples if waiting is None else 1,
            max_concurrent_trials=section.concurrency,
            time_budget_s=section.time_budget,
            reuse_actors=not section.scheduler.copies,  # a process that is kept would hold the trial's folder
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=workspace,
            failure_config=tune.FailureConfig(max_failures=section.retries),
            callbacks=[Observer(sweep, folder, progress, numbers)],
            verbose=0,
        ),
    )


def group(sweep: Sweep, config: dict[str, Any]) -> tune.PlacementGroupFactory:
    return tune.PlacementGroupFactory(sweep.bundles(sweep.config(config["point"])), strategy="PACK")


def space(sweep: Sweep) -> dict[str, Any]:
    """The dimensions as Ray Tune has them."""
    return {"point": {each.path: domain(each) for each in sweep.dims}}


def domain(dim: Dimension) -> Any:
    return tune.choice(list(dim.values)) if dim.kind in LISTS else getattr(tune, dim.kind)(*dim.values)


def proposer(sweep: Sweep, folder: SweepFolder) -> Any:
    """It begins with the points that it has proposed before; trials that have ended are told again, not run."""
    known = [{f"point/{path}": value for path, value in trial.point.items()} for trial in folder.trials()]
    return sweep.tune.search.proposer(space(sweep), sweep.tune.mode, sweep.seed, known)


class Observer(Callback):
    """Hears of every trial, notes how it ended, and keeps the progress going."""

    def __init__(self, sweep: Sweep, folder: SweepFolder, progress: SweepProgress, numbers: list[int] | None) -> None:
        self.sweep, self.folder, self.progress, self.numbers = sweep, folder, progress, numbers
        self.deadline = time.monotonic() + (sweep.tune.time_budget or float("inf"))

    def __reduce__(self) -> Any:
        return Callback, ()  # Tune keeps a copy for a restoration of its own, which is not used

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        self.progress.heard(self._name(trial), result["round"], result["score"])

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._end(trial, "stopped", "")

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._end(trial, "failed", last_line(trial.error_file))

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        self.progress.refresh()

    def _end(self, trial: Any, status: str, reason: str) -> None:
        """Unless its runs tell themselves how they ended, or the sweep's time is over."""
        folder = self.folder.trial(self._name(trial))
        if not folder.point:  # it did not get as far as that
            folder.begin(trial.config["point"])
        if folder.status == "running" and (status == "failed" or time.monotonic() < self.deadline):
            folder.end(status, reason)
        self.progress.ended(folder.name, folder.status)

    def _name(self, trial: Any) -> str:
        return trial_name(trial.trial_id, trial.config, self.numbers)


def last_line(file: Any) -> str:
    try:
        lines = [line.strip() for line in Path(file).read_text().splitlines() if line.strip()]
    except (OSError, TypeError):
        return "unknown"
    return lines[-1] if lines else "unknown"
