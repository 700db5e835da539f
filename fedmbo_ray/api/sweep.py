"""run_sweep: run a sweep from Python; Sweep: the results in its folder."""

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fedmbo_ray.api.load import opened, require_kind
from fedmbo_ray.api.run import Run
from fedmbo_ray.config.overrides import Override, changed, plain
from fedmbo_ray.config.schema import Fields
from fedmbo_ray.config.shipped import find_config, is_override
from fedmbo_ray.core.errors import ConfigError, RunFailed, choices
from fedmbo_ray.core.io import SHIPPED, read_yaml
from fedmbo_ray.core.timed_folders import gone_if_empty, require_writable
from fedmbo_ray.runs.progress import watched
from fedmbo_ray.runs.ray_session import ray_session
from fedmbo_ray.runs.records import Record
from fedmbo_ray.sweeps.continuation import continued, new_folder, newest_folder
from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.preflight import check_metric, nodes, require_place
from fedmbo_ray.sweeps.ranking import BestTrial, ranked
from fedmbo_ray.sweeps.scales import STANDARD
from fedmbo_ray.sweeps.schema import SweepFields, SweepPlan, make_sweep, scaled
from fedmbo_ray.tracking.tracked_sweep import run_tracked

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

SweepConfig = str | Path | Mapping[str, object]
QUICKSTART = SHIPPED / "quickstart.yaml"


def run_sweep(
    config: SweepConfig | None = None,
    *overrides: str,
    out: str | Path | None = None,
    resume: bool = False,
    scale: str = STANDARD,
    progress: bool | None = None,
    track: bool = True,
    **changes: object,
) -> "Sweep":
    """Run a sweep on Ray Tune to its end and return it.

    Ray is started if it is not running, and stopped again. The results are in the sweep's folder; `resume=True`
    continues an interrupted sweep. `tune.tracking_uri` or $MLFLOW_TRACKING_URI is the address of MLflow; the default is
    a file `mlflow.db` in the working folder.

    Args:
        config: a YAML file, the name of a shipped sweep (`"mnist_steps"`), or a mapping with the same keys; by default
            the shipped `quickstart`.
        *overrides: changes, written as on the command line: `"algorithm.step_size={grid: [0.1, 0.2]}"`.
        out: the sweep's folder; by default `sweeps/<name>-<time>`.
        resume: continue the sweep in `out` or, without it, the last one of this name.
        scale: a name in the section `scales` of the config; by default the config as it is.
        progress: whether to show progress on stderr; None shows it only in a terminal or a notebook.
        track: whether to record the sweep in MLflow.
        **changes: changes as keywords: `rounds=50`; keys with dots as `**{"tune.seeds": 3}`.

    Returns:
        The sweep: its trials as a table, its best run, all its runs.

    Raises:
        ConfigError: if the config breaks a rule, or `out` can't be used; nothing has been started.
        DownloadError: if the data set could not be downloaded.
        FolderInUse: if a sweep that has not ended, in this or another process, uses `out`.
        FolderDamaged: if a file in `out` can't be read.
        RunFailed: if every trial has diverged or failed.

    Example:
        >>> from fedmbo_ray import run_sweep
        >>> sweep = run_sweep("quadratic", "algorithm.step_size={grid: [0.01, 0.02]}", rounds=20)  # doctest: +SKIP
        >>> sweep.trials[["algorithm.step_size", "upper_loss"]]  # doctest: +SKIP
    """
    if isinstance(config, str) and is_override(config):
        overrides, config = (config, *overrides), None
    given: list[Override] = [*overrides, *((key.split("."), value) for key, value in changes.items())]
    sweep, folder = prepared_sweep(config, given, out, resume, scale)
    scaled_to = [] if scale == STANDARD else ["--scale", scale]
    named = ["--out", str(folder.path), "--resume"] if resume else [name_of(config)]
    words = [*named, *overrides, *as_words(changes), *scaled_to]
    shown = watched() if progress is None else progress
    run_prepared_sweep(sweep, folder, f"fedmbo tune {shlex.join(words)}", shown, track)
    return Sweep(folder.path)


def as_words(changes: Mapping[str, object]) -> list[str]:
    """Keywords as `key.path=value` words, for the command that a sweep is recorded with."""
    return [f"{key}={json.dumps(plain(value), default=str)}" for key, value in changes.items()]


def name_of(config: SweepConfig | None) -> str:
    """The name of a config on the command line; for a mapping, the file `sweep.yaml` in MLflow."""
    return "sweep.yaml" if isinstance(config, Mapping) else str(config or QUICKSTART.stem)


def prepared_sweep(
    config: SweepConfig | None,
    overrides: Sequence[Override],
    out: str | Path | None,
    resume: bool,
    scale: str = STANDARD,
) -> tuple[SweepPlan, SweepFolder]:
    """The sweep and its folder, both checked; raises ConfigError before anything is started."""
    given = sweep_fields(config)
    stem = "sweep" if isinstance(config, Mapping) else Path(name_of(config)).stem
    named = None if out is None else SweepFolder(Path(out).expanduser())
    if resume:
        folder = named or newest_folder(stem)
        return continued(folder, given, overrides, scale), folder
    if named is not None and named.path.exists() and not named.path.is_dir():
        raise ConfigError(f"out must be a folder, but {named.path} is a file")
    if named is not None and named.has_sweep():
        raise ConfigError(f"{named.path} already holds a sweep; continue it (resume) or choose another folder (out)")
    return plan_of(config, overrides, scale), named or new_folder(stem)


def plan_of(config: SweepConfig | None, overrides: Sequence[Override], scale: str = STANDARD) -> SweepPlan:
    """The sweep that a config describes, with overrides applied."""
    given = sweep_fields(config)
    return make_sweep(
        changed(scaled(read_yaml(QUICKSTART) if given is None else given, scale), list(overrides), SweepFields)
    )


def sweep_fields(config: SweepConfig | None) -> Fields | None:
    """The keys and values of a config that is a mapping, a file or a name; None if there is none."""
    if config is None:
        return None
    if isinstance(config, Mapping):
        return {str(key): plain(value) for key, value in config.items()}
    if not isinstance(config, str | Path):
        raise ConfigError(f"a config must be a file, a name or a mapping, but got {type(config).__name__}")
    return read_yaml(find_config(config))


def run_prepared_sweep(
    sweep: SweepPlan, folder: SweepFolder, command: str, shown: bool = True, track: bool = True
) -> BestTrial:
    """Run the unfinished trials of a sweep, with progress on stderr if `shown`; returns the best trial."""
    with gone_if_empty(folder.path):
        check_metric(sweep)
        with ray_session():
            require_place(sweep, nodes())
            require_writable(folder.path)
            return run_tracked(sweep, folder, command, shown=shown, track=track)


class Sweep:
    """A sweep, finished or not, as its folder holds it; `load` opens one.

    Attributes:
        folder: the sweep's folder.
        plan: its config.

    Example:
        >>> from fedmbo_ray import load
        >>> load("sweeps/quickstart-2026-01-31_12-00-00").best.records  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = require_kind(folder, "sweep")
        self._files = SweepFolder(self.folder)

    @cached_property
    def plan(self) -> SweepPlan:
        return make_sweep(self._files.fields())

    @property
    def trials(self) -> "DataFrame":
        """A row for each trial, the best first.

        Columns are the keys that the sweep varies, `status`, `round`, `score` (by which trials are compared; nan if
        there is none), and the figures of the last record as means over seeds.
        """
        from pandas import DataFrame  # takes half a second to import

        rows = []
        for each in ranked(self._files, self.plan.tune):
            last = (self._files.trial(each.name).records() or [{}])[-1]
            own = {**each.point, "status": each.status, "round": each.round, "score": each.score}
            rows.append({"trial": each.name, **own, **{key: last[key] for key in last if key not in own}})
        table = DataFrame(rows, columns=None if rows else ["trial", "status", "round", "score"]).set_index("trial")
        return table.astype({"score": float})

    @property
    def best(self) -> Run:
        """The run of the best trial with its first seed; `best.config` is its config.

        Raises:
            RunFailed: if no trial has a score.
        """
        trials = ranked(self._files, self.plan.tune)
        if not trials or trials[0].score is None:
            raise RunFailed(f"no trial of the sweep in {self.folder} has a score")
        return opened(self._files.trial(trials[0].name).run(0).path)

    @property
    def runs(self) -> list[Run]:
        """Every run that has a record, trial by trial and seed by seed."""
        return [opened(run.path) for trial in self._files.trials() for run in trial.runs if run.has_run()]

    def plot(self, y: str | None = None, x: str = "communications", trials: int = 5) -> "Figure":
        """Plot one figure of the best trials against another, with means and deviations over seeds.

        Args:
            y: a figure of the records; by default the one by which trials are compared.
            x: the figure on the horizontal axis, such as `"round"`, `"samples"` or `"wall_seconds"`.
            trials: how many to show.

        Returns:
            A matplotlib figure, to show or to save.

        Raises:
            ConfigError: if no record has such a figure.
        """
        from fedmbo_ray.analysis.learning import draw_curves  # matplotlib takes seconds to import

        y = y or self.plan.tune.metric
        shown = [self._files.trial(each.name) for each in ranked(self._files, self.plan.tune)[:trials]]
        records = [(trial.label, [run.records() for run in trial.runs if run.has_run()]) for trial in shown]
        require_figures([record for _, runs in records for run in runs for record in run], x, y)
        found = [(label, [points(run, x, y) for run in runs]) for label, runs in records]
        drawn = [(label, [each for each in runs if each[0]]) for label, runs in found]
        return draw_curves([(label, runs) for label, runs in drawn if runs], x, y)

    def __repr__(self) -> str:
        return f"Sweep({str(self.folder)!r}, {len(self._files.trials())} trials)"


def require_figures(records: list[Record], *names: str) -> None:
    """Raise a ConfigError for a name that is no figure of any record."""
    known = list(dict.fromkeys(key for record in records for key, each in record.items() if is_figure(each)))
    for name in names:
        if name not in known:
            raise ConfigError(f"must be a figure of a record, but got {name!r}; {choices(name, known)}")


def points(records: list[Record], x: str, y: str) -> tuple[list[float], list[float]]:
    """One figure of a run against another, in the records that have both."""
    both = [record for record in records if is_figure(record.get(x)) and is_figure(record.get(y))]
    return [record[x] for record in both], [record[y] for record in both]


def is_figure(value: object) -> bool:
    return isinstance(value, int | float)
