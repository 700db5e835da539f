"""A single run, recorded in MLflow like a trial of a sweep: `fedmbo run --track`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.io import new_identity, own_folder, to_yaml
from fedmbo_ray.core.markup import code_markdown
from fedmbo_ray.core.timed_folders import untimed
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.tracking.background import BackgroundTracking, where_to_look
from fedmbo_ray.tracking.client_picture import ClientPictures
from fedmbo_ray.tracking.mlflow_experiment import MlflowExperiment
from fedmbo_ray.tracking.tracked_run import KEY, TrackedRun

ONE_RUN = "run"  # the key of a run that is no part of a sweep
EXPERIMENT = "runs"  # of runs whose folder is named by the time alone


@contextmanager
def tracked(config: RunConfig, folder: RunFolder, command: str) -> Iterator[None]:
    """In this context, the run in a folder is recorded in MLflow, at the end with its status.

    The folder is the source of truth: a resumed run continues its run in MLflow, and while the server can't be reached,
    records wait in the folder.

    Args:
        config: the run's config.
        folder: the run's folder; a file `identity` in it links it to the run in MLflow.
        command: the command that repeats the run.

    Example:
        >>> with tracked(config, folder, "fedmbo run"):  # doctest: +SKIP
        ...     records = list(run(config, folder))
    """
    tracker = RunTracker(config, folder, command)
    with BackgroundTracking(tracker) as background:
        yield
        if background.conclude():
            print(where_to_look(tracker), file=sys.stderr)
        else:
            said = f"MLflow at {tracker.uri} can't be reached: continue the run in {folder.path} (resume, track)"
            print(said, file=sys.stderr)


class RunTracker:
    """Brings MLflow up to date with a run's folder; every method may fail, and be called again."""

    def __init__(self, config: RunConfig, folder: RunFolder, command: str) -> None:
        self.config, self.folder, self.command = config, folder, command
        own_folder(folder.path)
        self.identity = new_identity(folder.path / "identity")
        self.experiment = MlflowExperiment(untimed(folder.path.resolve().name) or EXPERIMENT, None)
        self.pictures = ClientPictures()
        self.run: TrackedRun | None = None

    @property
    def uri(self) -> str:
        return self.experiment.uri

    @property
    def page(self) -> str:
        return self.experiment.pages.run(self._connected().run_id)

    def prepare(self) -> None:
        self.experiment.open()

    def forget(self) -> None:
        self.run = None

    def _connected(self) -> TrackedRun:
        """Its run in MLflow, found again or made."""
        if self.run is None:
            self.experiment.connect()
            found = self.experiment.runs(f"tags.`fedmbo.run` = '{self.identity}'")
            tags = {"fedmbo.run": self.identity, KEY: ONE_RUN, "mlflow.source.name": "fedmbo_ray.run"}
            name = self.folder.path.resolve().name or EXPERIMENT
            run = found[0] if found else self.experiment.create(name, None, tags | {"command": self.command})
            self.run = TrackedRun(self.experiment, run)
            self.run.go_on()
            self._describe(self.run)
        return self.run

    def _describe(self, run: TrackedRun) -> None:
        if not run.described:
            run.describe(self.config, {}, code_markdown(self.command), self.pictures)
        else:  # parameters can't be changed; more rounds may have been asked for
            run.client.log_text(run.run_id, to_yaml(self.config.resolved()).decode(), "config.yaml")

    def update(self) -> None:
        self._connected().send(self.folder.records(), [])

    def conclude(self) -> None:
        run, records = self._connected(), self.folder.records()
        run.send(records, [])
        last = records[-1] if records else {}
        if "status" in last:
            if last["status"] == "finished":
                run.keep_model(self.config, self.folder)
            run.end(last["status"], last.get("reason", ""), last)
        else:
            run.interrupt()

    def interrupt(self) -> None:
        if self.run is not None:
            self.update()
            self.run.interrupt()
