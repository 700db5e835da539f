"""Proves that the points, configs, records and results in a sweep's folder belong to the sweep.

This is done once when a sweep is continued, before anything is decided. Later steps rely on the folder.
"""

from contextlib import ExitStack

from fedmbo_ray.config.overrides import changes
from fedmbo_ray.config.schema import Fields, RunConfig
from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError, FolderDamaged, RunFailed
from fedmbo_ray.core.io import held, read_yaml
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.loop import PATIENCE
from fedmbo_ray.sweeps.folder import SweepFolder, TrialFolder, name_of_point, numbered
from fedmbo_ray.sweeps.schema import SweepPlan
from fedmbo_ray.sweeps.space import SweepPoint


def prove(sweep: SweepPlan, folder: SweepFolder) -> None:
    """Raise FolderDamaged or RunFailed if a trial is not one of this sweep, or was changed after it was run.

    Runs that have not ended go back to their newest checkpoints, as in a resume, so that everything that remains is
    proven. So do runs that have lost their result, which is then made again. The sweep must be claimed.
    """
    points = sweep.points()
    known = None if points is None else {numbered(number): point for number, point in enumerate(points)}
    for trial in folder.begun():
        if trial.point_file.exists() or trial.runs:
            require_own_point(sweep, trial, known)
            prove_trial(sweep, trial)


def require_own_point(sweep: SweepPlan, trial: TrialFolder, known: dict[str, SweepPoint] | None) -> None:
    """Raise FolderDamaged unless a trial has the point that the sweep gives it; `known` has the points by name."""
    point = trial.point
    if known is None:
        own = trial.name.partition("-")[0] == name_of_point(point)
    elif sweep.tune.scheduler.copies:  # its trials change their points
        own = trial.name in known and point.keys() == known[trial.name].keys()
    else:
        own = trial.point_file.exists() and known.get(trial.name) == point
    if not own:
        raise FolderDamaged(
            f"{trial.path} is not a trial of this sweep, or has another point ({trial.label}); put "
            f"{trial.point_file.name} back as it was, or remove {trial.path} to run it again"
        )


def prove_trial(sweep: SweepPlan, trial: TrialFolder) -> None:
    """Check the runs of a trial. A trial whose ending is valid keeps all its records, since it will not go on."""
    with ExitStack() as stack:
        for seed, run in trial.numbered_runs():
            stack.enter_context(held(run.path, PATIENCE))
            config = sweep.config(trial.point, seed)
            if run.has_records() and config_of(run) is None:
                mend(trial, run, config)
            require_same_run(run, config)
        stopped = trial.keeps_ending()
        if not stopped:
            trial.ending_file.unlink(missing_ok=True)
        for run in trial.runs:
            if stopped:
                run.require_proven()
            else:
                run.settle()


def config_of(folder: RunFolder) -> Fields | None:
    """The resolved config in a run's folder; None if it can't be read."""
    try:
        return construct(RunConfig, read_yaml(folder.config_file)).resolved()
    except ConfigError:
        return None


def mend(trial: TrialFolder, run: RunFolder, config: RunConfig) -> None:
    """Write the config again if a checkpoint proves that the run is of this trial; else, the run begins again."""
    if run.latest(config=config.resolved()) is None:
        trial.ending_file.unlink(missing_ok=True)
        run.rewind(None)
    run.describe(config.resolved())


def require_same_run(folder: RunFolder, config: RunConfig) -> None:
    """Raise RunFailed if a folder has a run of another config; keys that a newer version has added have their defaults.

    It is no other config if it can't be read: checkpoints have theirs, too.
    """
    there = config_of(folder) if folder.has_records() else None
    other = [] if there is None else changes(there, config.resolved())
    if other:
        rule = f"the run in {folder.path} must have the config of its trial, but these keys differ: {', '.join(other)}"
        raise RunFailed(
            f"{rule}; put {folder.config_file.name} back as it was, or continue it with the version that made it, or "
            f"remove {folder.path} to run it again"
        )
