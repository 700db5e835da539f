"""run_experiment: a whole run in one call."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from shlex import quote

from fedmbo_ray.api.configs import ConfigLike
from fedmbo_ray.api.run import Run
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.runs.folder import RunFolder


def run_experiment(
    config: ConfigLike = None,
    *overrides: str,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    track: bool = False,
    **changes: object,
) -> Run:
    """Run a config to its end.

    The process is left as it was: stdout, signal handlers, torch's threads, the environment, matplotlib's backend. An
    interrupted run with a folder can be continued with `resume=True`.

    Args:
        config: a path to a YAML file, a mapping, a `RunConfig`, or None for the shipped default.
        overrides: changes to the config, written as on the command line, such as ``"algorithm.step_size=0.1"``.
        out: the folder for config, records, checkpoints and result; None keeps everything in memory.
        resume: continue the run in `out` from its newest checkpoint; without `config`, with the config in the folder.
            `rounds` and `budget` may be larger than before, unless a step size depends on the number of rounds.
        progress: whether to show progress on stderr; None shows it only in a terminal or a notebook.
        track: record the run in MLflow, like a sweep; needs `out`.
        changes: changes as keywords, such as ``rounds=20``; keys with dots as ``**{"clients.cohort_size": 5}``.

    Returns:
        The finished run: its records, the final x and y, a model and plots.

    Raises:
        ConfigError: the config breaks a rule, or `out` can't be used; one line, as the command line prints it.
        DownloadError: the data set could not be downloaded.
        FolderInUse: a run that has not been closed, in this or another process, uses `out`.
        FolderDamaged: a file in `out` can't be read, or an older version wrote it.
        RunFailed: the problem or the method raised an exception, or processes keep dying. In this process, the
            exception is the error's `__cause__`; on Ray, its traceback is in the message.

    Example:
        >>> run = run_experiment(rounds=20, seed=1)
        >>> run.status
        'finished'
        >>> int(run.records["round"].iloc[-1])
        20
    """
    with (
        Run(config, *overrides, out=out, resume=resume, progress=progress, **changes) as run,
        _tracking(run) if track else nullcontext(),
    ):
        return run.finish()


def _tracking(run: Run) -> AbstractContextManager[None]:
    from fedmbo_ray.tracking.single import tracked

    if run.folder is None:
        raise ConfigError("track needs out, the folder whose records go to MLflow")
    return tracked(run.config, RunFolder(run.folder), f"fedmbo run --out {quote(str(run.folder))} --resume --track")
