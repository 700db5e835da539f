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
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining
from ray.tune.search.optuna import OptunaSearch
from rich.console import Console

from fedmbo_ray.driver import start_ray
from fedmbo_ray.sweeps.config import Asha, Pbt, Sweep
from fedmbo_ray.sweeps.dimensions import Dimension, Point, corners
from fedmbo_ray.sweeps.folder import STATUSES, SweepFolder
from fedmbo_ray.sweeps.progress import SweepProgress
from fedmbo_ray.sweeps.trial import run_trial, trial_name

QUIET = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


def run_sweep(sweep: Sweep, folder: SweepFolder, console: Console) -> None:
    """Run what is left of a sweep; returns when every trial has ended, or its time is over."""
    os.environ.update(QUIET)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what fails is told by us, in one line
    known = sweep.points()
    waiting = None if known is None else left(sweep, folder, known)
    total = sweep.tune.samples if known is None else len(known)
    if waiting == [] or (known is None and not remaining(sweep, folder)):
        return
    owner = not ray.is_initialized()
    start_ray()
    workspace = tempfile.mkdtemp(prefix="fedmbo-tune-")
    try:
        with SweepProgress(sweep, folder, total, console) as progress:
            tuner(sweep, folder, waiting, workspace, Observer(sweep, folder, progress)).fit()
    finally:
        if owner:
            ray.shutdown()
        shutil.rmtree(workspace, ignore_errors=True)


def left(sweep: Sweep, folder: SweepFolder, points: list[Point]) -> list[dict[str, Any]]:
    """The numbered points still to run; halving, which compares trials, is told of those that have ended, too."""
    again = ("finished", "stopped", "diverged") if not isinstance(sweep.tune.scheduler, Asha) else ()
    chosen = [{"number": number, "point": point} for number, point in enumerate(points)]
    if isinstance(sweep.tune.scheduler, Pbt):  # whose trials change their points
        chosen = [{**each, "point": folder.trial(trial_name(each)).point or each["point"]} for each in chosen]
    return [each for each in chosen if folder.trial(trial_name(each)).status not in again]


def remaining(sweep: Sweep, folder: SweepFolder) -> int:
    """How many trials a search that proposes points is still to run."""
    return sweep.tune.samples - sum(trial.status in STATUSES for trial in folder.trials())


def tuner(sweep: Sweep, folder: SweepFolder, waiting: Any, workspace: str, observer: "Observer") -> tune.Tuner:
    section = sweep.tune
    trainable = tune.with_parameters(run_trial, plain=sweep.plain(), out=str(folder.path.absolute()))
    return tune.Tuner(
        tune.with_resources(trainable, lambda chosen: group(sweep, chosen)),
        param_space={} if waiting is None else {"chosen": tune.grid_search(waiting)},
        tune_config=tune.TuneConfig(
            metric="score",
            mode=section.mode,
            search_alg=optuna(sweep, folder) if waiting is None else None,
            scheduler=scheduler(sweep),
            num_samples=section.samples if waiting is None else 1,
            max_concurrent_trials=section.concurrency,
            time_budget_s=section.time_budget,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=workspace,
            failure_config=tune.FailureConfig(max_failures=section.retries),
            callbacks=[observer],
            verbose=0,
        ),
    )


def group(sweep: Sweep, chosen: dict[str, Any]) -> tune.PlacementGroupFactory:
    return tune.PlacementGroupFactory(sweep.bundles(sweep.config(chosen["chosen"]["point"])), strategy="PACK")


def scheduler(sweep: Sweep) -> Any:
    chosen = sweep.tune.scheduler
    if isinstance(chosen, Asha):
        rounds = max(sweep.config(point).rounds for point in sweep.points() or [{}])
        return ASHAScheduler(
            "round", max_t=rounds, grace_period=min(chosen.grace, rounds), reduction_factor=chosen.reduction
        )
    if isinstance(chosen, Pbt):
        space = {"chosen": {"point": {each.path: domain(each) for each in sweep.dims}}}
        return PopulationBasedTraining("round", perturbation_interval=chosen.interval, hyperparam_mutations=space)
    return FIFOScheduler()


def domain(dim: Dimension) -> Any:
    """A dimension as Ray Tune has it."""
    kind = "choice" if dim.kind == "grid" else dim.kind
    return tune.choice(list(dim.values)) if kind == "choice" else getattr(tune, kind)(*dim.values)


def optuna(sweep: Sweep, folder: SweepFolder) -> OptunaSearch:
    """It begins with the points that it has proposed before; trials that have ended are told again, not run."""
    known = [{f"chosen/point/{path}": value for path, value in trial.point.items()} for trial in folder.trials()]
    space = {"chosen": {"point": {each.path: domain(each) for each in sweep.dims}}}
    seed = sweep.config(next(corners(sweep.dims))).seed + len(known)  # not the same proposals once more
    return OptunaSearch(space, "score", sweep.tune.mode, points_to_evaluate=known or None, seed=seed)


class Observer(Callback):
    """Hears of every trial, notes how it ended, and keeps the progress going."""

    def __init__(self, sweep: Sweep, folder: SweepFolder, progress: SweepProgress) -> None:
        self.sweep, self.folder, self.progress = sweep, folder, progress
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
            folder.begin(trial.config["chosen"]["point"])
        if folder.status == "running" and (status == "failed" or time.monotonic() < self.deadline):
            folder.end(status, reason)
        self.progress.ended(folder.name, folder.status)

    @staticmethod
    def _name(trial: Any) -> str:
        return trial_name(trial.config["chosen"])


def last_line(file: Any) -> str:
    try:
        lines = [line.strip() for line in Path(file).read_text().splitlines() if line.strip()]
    except (OSError, TypeError):
        return "unknown"
    return lines[-1] if lines else "unknown"
