"""One run as a Python object: run it, step through it, look at its results."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from torch import Tensor, nn

from fedmbo_ray.api.configs import ConfigLike, prepared
from fedmbo_ray.api.session import failures_told, session
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.problems.base import Task
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.checkpoint import Checkpoint
from fedmbo_ray.runs.continuation import known_records
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.limits import Limits
from fedmbo_ray.runs.loop import Loop
from fedmbo_ray.runs.progress import RunProgress, watched
from fedmbo_ray.runs.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Run:
    """One run: step it round by round, or run it to its end. `load` opens one that is in a folder.

    Takes the arguments of `run_experiment`, except `track`, and raises the same errors. The data and the problem are
    made at once, so that mistakes show; no round is run before the first step. A started run keeps its folder locked
    and its client actors alive until it ends or is closed: use it in a `with` statement, or call `close`.

    Attributes:
        config: the `RunConfig`, every default filled in.
        folder: the run's folder; None if the run is kept in memory.

    Example:
        >>> with Run(rounds=3) as run:
        ...     while not run.done:
        ...         record = run.step()
        >>> run.round, run.status
        (3, 'finished')
    """

    def __init__(
        self,
        config: ConfigLike = None,
        *overrides: str,
        out: str | Path | None = None,
        resume: bool = False,
        progress: bool | None = None,
        **changes: object,
    ) -> None:
        folder = None if out is None else RunFolder(Path(out).expanduser())
        found, task = prepared(config, overrides, changes, folder, resume)
        self._begin(found, folder, resume, progress, task)
        if folder is not None and resume:
            self._records = known_records(folder, found)

    def _begin(
        self, config: RunConfig, folder: RunFolder | None, resume: bool, progress: bool | None, task: Task | None
    ) -> None:
        self.config, self.folder = config, None if folder is None else folder.path
        self._folder, self._resume, self._progress = folder, resume, progress
        self._task, self._records = task, list[Record]()
        self._loop: Loop | None = None
        self._resources = ExitStack()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else f"in {self.folder}"
        return f"<Run {where}: {self.round} rounds, {self.status}>"

    def step(self) -> Record | None:
        """Do one round.

        Returns:
            The record of that round, or None: there is a record every `record.every` rounds and at the end.

        Raises:
            FolderInUse, FolderDamaged, RunFailed: see `run_experiment`.

        Example:
            >>> Run(rounds=1).step()["status"]
            'finished'
        """
        loop = self._started()
        with failures_told():
            record = None if loop is None else loop.step()
        if self.done:
            self.close()
        return record

    def __iter__(self) -> Iterator[Record]:
        """All records: first the existing ones, then new ones as they are made."""
        self._started()
        yielded = 0
        while yielded < len(self._records) or not self.done:
            if yielded == len(self._records):
                self.step()
            else:
                yield self._records[yielded]
                yielded += 1

    def finish(self) -> "Run":
        """Run to the end. If it is interrupted, the run in the folder can be continued.

        Returns:
            The run itself.

        Raises:
            FolderInUse, FolderDamaged, RunFailed: see `run_experiment`.

        Example:
            >>> Run(rounds=2).finish().round
            2
        """
        try:
            if watched() if self._progress is None else self._progress:
                self._finish_watched()
            while not self.done:
                self.step()
        finally:
            self.close()
        return self

    def _finish_watched(self) -> None:
        with RunProgress(Limits.of(self.config)) as progress:
            loop = self._started()
            for record in self._records:
                progress.show(record)
            while loop is not None and not self.done:
                new = self.step()
                if new is not None:
                    progress.show(new)
                progress.tick(loop.round, loop.share)

    def close(self) -> None:
        """Save unsaved rounds; release the folder, the client actors and Ray, if it was started for them."""
        self._resources.close()

    def _started(self) -> Loop | None:
        """The loop, started if necessary, with the records so far; None if the run is done."""
        if self.done:
            return None
        if self._loop is not None and not self._loop.closed:
            return self._loop
        if self._loop is not None and self._folder is None:
            raise RunFailed("this run was closed, and it has no folder to continue from")
        try:
            with failures_told():
                loop = self._resources.enter_context(session(self.config, self._folder, self._resume, self._built()))
                self._resume = True
                self._records = loop.opening()  # the loop adds to them
        except BaseException:
            self.close()
            raise
        self._loop = loop
        return loop

    def _built(self) -> Task:
        self._task = build_task(self.config) if self._task is None else self._task
        return self._task

    @property
    def records(self) -> "DataFrame":
        """One row for each record, from round 0 on."""
        from pandas import DataFrame  # takes half a second

        return DataFrame(self._records)

    @property
    def last(self) -> Record:
        """The newest record; empty if there is none."""
        return self._records[-1] if self._records else {}

    @property
    def status(self) -> str:
        """`finished`, `diverged`, or `unfinished`."""
        return self.last.get("status", "unfinished")

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return "status" in self.last

    @property
    def round(self) -> int:
        """The number of rounds so far."""
        return self._loop.round if self._loop is not None else self.last.get("round", 0)

    @property
    def x(self) -> Tensor:
        """The upper variable after the last round, a flat torch vector."""
        return self._point()["x"].clone()

    @property
    def y(self) -> Tensor:
        """The lower variable after the last round: a flat torch vector, or one row for each client."""
        return self._point()["y"].clone()

    def _point(self) -> dict[str, Tensor]:
        found = self._loop.state if self._loop else None if self._folder is None else self._folder.result()
        if found is None:
            raise RunFailed("there are no x and y yet: no round has been run or saved")
        return found

    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint in the folder, with the whole state of the algorithm; None if there is none."""
        return None if self._folder is None else self._folder.latest()

    def model(self, client: int | None = None) -> nn.Module:
        """The classifier with weights x and y, as a torch module; its inputs are those of the data set.

        Args:
            client: whose classifier, if every client has a y of its own.

        Raises:
            ConfigError: the problem has no model, or the client none.
        """
        from fedmbo_ray.tracking.model import model_for

        return model_for(self._built(), self.x, self.y, client)

    def plot(self, y: str = "upper_loss", x: str = "communications") -> "Figure":
        """Plot one figure of the records against another.

        Args:
            y: a column of `records`, such as ``"test_accuracy"``.
            x: the column on the horizontal axis.

        Returns:
            A matplotlib figure without a window or a backend; a notebook shows it.

        Raises:
            ConfigError: there is no such column.
        """
        from fedmbo_ray.api.picture import picture  # matplotlib takes a second

        return picture(self._records, y, x)
