"""run_study: run a study from Python; Study: the results in its folder."""

import shlex
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fedmbo_ray.api.load import require_kind
from fedmbo_ray.api.sweep import Sweep, as_words
from fedmbo_ray.config.overrides import Override
from fedmbo_ray.core.errors import ConfigError, choices
from fedmbo_ray.core.timed_folders import gone_if_empty, new_timed, newest_timed
from fedmbo_ray.runs.progress import watched
from fedmbo_ray.runs.ray_session import ray_session
from fedmbo_ray.studies.plans import StudyFolder
from fedmbo_ray.studies.questions import QUESTIONS, require_parts
from fedmbo_ray.studies.study_run import StudyRun
from fedmbo_ray.studies.tracked_study import run_sweeps
from fedmbo_ray.sweeps.scales import SCALES, STANDARD
from fedmbo_ray.tracking.background import wait_for_mlflow
from fedmbo_ray.tracking.mlflow_experiment import MlflowExperiment

if TYPE_CHECKING:
    from pandas import DataFrame

    from fedmbo_ray.analysis.conclusions import Conclusion


def run_study(
    name: str,
    *overrides: str,
    scale: str = STANDARD,
    out: str | Path | None = None,
    resume: bool = False,
    only: str | Sequence[str] = (),
    progress: bool | None = None,
    **changes: object,
) -> "Study":
    """Run a study: run the sweeps that answer its question, judge the results and draw the figures.

    Ray is started if it is not running, and stopped again. A study is always recorded in MLflow, which its verdict and
    figures are made from; there it is a run whose children are its sweeps.

    Args:
        name: the name of the study: `"linear_speedup"`, `"heterogeneity"`, `"theory"`, … (see `fedmbo study --help`).
        *overrides: changes to all its sweeps, written as on the command line: `"clients.backend=ray"`.
        scale: how much is run: `"smoke"`, `"standard"` or `"paper"`.
        out: the study's folder; by default `studies/<name>-<scale>-<time>`.
        resume: continue the study in `out` or, without it, the last one of this name and scale; if there is none,
            a new one is started, so that one call can be repeated until the study is done.
        only: the name of the sweep to run, or several; by default all.
        progress: whether to show progress on stderr; None shows it only in a terminal or a notebook.
        **changes: changes to all its sweeps as keywords; keys with dots as `**{"tune.seeds": 3}`.

    Returns:
        The study: its verdict, its claims as a table, its figures, its sweeps.

    Raises:
        ConfigError: if the name is unknown, a change breaks a rule, or `out` can't be used.
        DownloadError: if a data set could not be downloaded.
        FolderInUse: if a sweep that has not ended, in this or another process, uses the folder.
        FolderDamaged: if a file in the folder can't be read.
        RunFailed: if every trial of a sweep has diverged or failed, or MLflow can't be reached.

    Example:
        >>> from fedmbo_ray import run_study
        >>> run_study("theory", scale="smoke").claims  # doctest: +SKIP
    """
    only = [only] if isinstance(only, str) else list(only)
    words = [name, "--scale", scale, *overrides, *as_words(changes), *(["--only", ",".join(only)] if only else [])]
    given: list[Override] = [*overrides, *((key.split("."), value) for key, value in changes.items())]
    folder = prepared_study(name, scale, out, resume, only)
    shown = watched() if progress is None else progress
    with gone_if_empty(folder.path), ray_session():
        run_prepared_study(name, folder, scale, given, only, f"fedmbo study {shlex.join(words)}", shown)
    return Study(folder.path)


def prepared_study(
    name: str, scale: str, out: str | Path | None, resume: bool, only: Sequence[str] = ()
) -> StudyFolder:
    """The study's folder, checked; raises ConfigError before anything is started."""
    if name not in QUESTIONS:
        raise ConfigError(f"unknown study {name!r}; {choices(name, list(QUESTIONS))}")
    if scale not in SCALES:
        raise ConfigError(f"unknown scale {scale!r}; {choices(scale, list(SCALES))}")
    require_parts(name, only)
    place, start = Path("studies"), f"{name}-{scale}"
    named = None if out is None else Path(out).expanduser()
    found = newest_timed(place, start, "scale") if resume and named is None else named
    if resume and named is not None and not StudyFolder(named).has_study():
        raise ConfigError(f"resume needs a folder with a study, but {named} has none")
    folder = StudyFolder(new_timed(place, start) if found is None else found)
    require_same(folder, name, scale, resume)
    return folder


def require_same(folder: StudyFolder, name: str, scale: str, resume: bool) -> None:
    """Raise a ConfigError if the study in a folder may not be continued."""
    if not folder.has_study():
        return
    if not resume:
        raise ConfigError(f"{folder.path} already holds a study; continue it (resume) or choose another folder (out)")
    if folder.scale != scale:
        raise ConfigError(f"resume must keep the scale, but {folder.path} has {folder.scale!r}, not {scale!r}")
    if folder.name_file.exists() and folder.name != name:
        raise ConfigError(f"resume must keep the study, but {folder.path} has {folder.name!r}, not {name!r}")


def run_prepared_study(
    name: str,
    folder: StudyFolder,
    scale: str,
    overrides: Sequence[Override],
    only: Sequence[str],
    command: str,
    shown: bool = True,
) -> int:
    """Run what is left of a study and judge it; returns the number of failed trials."""
    run = StudyRun(name, folder, command)
    swept = run_sweeps(run, scale, overrides, only, shown)
    judge_and_record(run, swept.tracking_uri, shown)
    return swept.failed


def judge_and_record(run: StudyRun, uri: str | None, shown: bool = True) -> None:
    """Judge the results in MLflow, draw figures, and record both in MLflow."""
    from fedmbo_ray.analysis.conclusions import conclude as judged  # matplotlib takes seconds to import
    from fedmbo_ray.analysis.mlflow_reader import Store

    experiment, figures = MlflowExperiment(run.name, uri), run.folder.figures

    def judge() -> "Conclusion":
        return judged(Store(experiment.uri).study(run.name, run.identity), figures)

    def record() -> None:
        run.conclude(experiment, figures, conclusion.note(run.command), conclusion.status)

    wait_for_mlflow(experiment.connect, experiment.uri)
    conclusion = wait_for_mlflow(judge, experiment.uri)
    wait_for_mlflow(record, experiment.uri)
    if shown:
        print(conclusion.text(), file=sys.stderr)
        print(f"figures: {figures}", file=sys.stderr)


class Study:
    """A study, finished or not, as its folder holds it; `load` opens one.

    Attributes:
        folder: the study's folder.

    Example:
        >>> from fedmbo_ray import load
        >>> load("studies/theory-smoke-2026-01-31_12-00-00").verdict  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = require_kind(folder, "study")
        self._files = StudyFolder(self.folder)

    @property
    def name(self) -> str:
        """The name of the study, such as `theory`."""
        return self._files.name

    @property
    def scale(self) -> str:
        """How much was run: `smoke`, `standard` or `paper`."""
        return self._files.scale

    @property
    def question(self) -> str:
        """The question that the study answers."""
        return QUESTIONS[self.name].text

    @cached_property
    def _conclusion(self) -> "Conclusion | None":
        from fedmbo_ray.analysis.conclusions import VERDICT, read  # matplotlib takes seconds to import

        return read(self._files.figures) if (self._files.figures / VERDICT).exists() else None

    @property
    def verdict(self) -> str:
        """`passed`, `failed`, `compared` (no claim is certified), or `open` (too little was run to decide)."""
        return self._conclusion.status if self._conclusion is not None else "open"

    @property
    def claims(self) -> "DataFrame":
        """A row for each claim: `text`, `rule`, `measured`, `status` (holds, fails, open), `certified`, `p`."""
        from pandas import DataFrame

        from fedmbo_ray.analysis.claims import Claim

        claims = self._conclusion.claims if self._conclusion is not None else []
        return DataFrame(claims, columns=Claim._fields)

    @property
    def figures(self) -> list[Path]:
        """The figures as PNG files; next to each is an SVG file of the same name."""
        return sorted(self._files.figures.glob("*.png"))

    @property
    def sweeps(self) -> dict[str, Sweep]:
        """The sweeps that have started, by name."""
        return {each.path.name: Sweep(each.path) for each in self._files.sweeps()}

    def __repr__(self) -> str:
        return f"Study({str(self.folder)!r}, {self.verdict})"
