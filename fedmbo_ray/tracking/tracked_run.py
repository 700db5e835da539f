"""One run in MLflow and its progress: described once, sent record by record, ended once.

The server is asked what it already has, so that any process can continue a run at any time: nothing is lost while the
server can't be reached, and nothing is sent twice.
"""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.io import to_yaml
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.records import Record
from fedmbo_ray.sweeps.space import SweepPoint
from fedmbo_ray.tracking.client_picture import ClientPicture, ClientPictures
from fedmbo_ray.tracking.metadata import data_set, parameters, run_note
from fedmbo_ray.tracking.mlflow_experiment import MlflowExperiment
from fedmbo_ray.tracking.model import log_model, model_of

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.entities import Run as MlflowRun

LONGEST = 5000  # characters of a tag
BATCH = 900  # metrics in one request; MLflow takes a thousand
KEY = "fedmbo.key"  # the tag that tells the runs of one folder apart
CLIENTS = "clients"  # the tag that says what data the clients have
WHOLE_SWEEP = ""  # the key of a sweep's own run, which is never ended for good


class TrackedRun:
    """Every method may fail, and be called again."""

    def __init__(self, experiment: MlflowExperiment, run: "MlflowRun") -> None:
        self.experiment, self.client = experiment, experiment.client
        self.run_id, self.start_time = run.info.run_id, run.info.start_time
        self.round = int(run.data.metrics.get("round", -1))
        self.described = "fedmbo.described" in run.data.tags
        self.pictured = CLIENTS in run.data.tags
        self.status, self.reason = (run.data.tags.get(key, "") for key in ("status", "reason"))  # as in MLflow
        self.ended = run.info.status == "FINISHED" and run.data.tags.get(KEY) != WHOLE_SWEEP

    def describe(self, config: RunConfig, point: SweepPoint, label: str, pictures: ClientPictures | None) -> None:
        """Send the config as parameters and as a file, the data and, with `pictures`, the clients."""
        self.client.log_text(self.run_id, to_yaml(config.resolved()).decode(), "config.yaml")
        if config.data is not None:
            dataset = config.data.load()
            self.client.log_inputs(self.run_id, [data_set(config.data, dataset)])
            if pictures is not None:
                self.show_clients(pictures.of(config, dataset))
        self.experiment.log_params(self.run_id, parameters(config, point))
        note = run_note(self.experiment.pages, self.run_id, label, self.pictured)
        self.client.set_tag(self.run_id, "mlflow.note.content", note)
        self.note_described()

    def show_clients(self, picture: ClientPicture | None) -> None:
        """Send, once, how clients differ: files, numbers as metrics of round 0, and one line as a tag."""
        from mlflow.entities import Metric, RunTag

        if picture is None or self.pictured:
            return
        with tempfile.TemporaryDirectory() as folder:
            for name, content in picture.files.items():
                (Path(folder) / name).write_bytes(content)
            self.client.log_artifacts(self.run_id, folder)
        metrics = [Metric(name, number, self.start_time, 0) for name, number in picture.numbers.items()]
        self.client.log_batch(self.run_id, metrics, tags=[RunTag(CLIENTS, picture.title)])
        self.pictured = True

    def note_described(self) -> None:
        self.client.set_tag(self.run_id, "fedmbo.described", "yes")
        self.described = True

    def send(self, records: list[Record], system: list[Record]) -> None:
        """Send all records that MLflow does not have; the metric `round` is sent with each and shows the progress."""
        beside = {each["round"]: each for each in system}
        batch: list[Metric] = []
        for record in records:
            if record["round"] > self.round:
                metrics = metrics_of(record, beside.get(record["round"], {}), self.start_time)
                if len(batch) + len(metrics) > BATCH:
                    self.client.log_batch(self.run_id, batch)
                    batch = []
                batch += metrics
        if batch:
            self.client.log_batch(self.run_id, batch)
            self.round = records[-1]["round"]

    def tell(self, numbers: dict[str, float]) -> None:
        """Send metrics of the whole run, if MLflow does not have them. A changed value gets the next step."""
        from mlflow.entities import Metric

        known, now = self.client.get_run(self.run_id).data.metrics, round(1000 * time.time())
        new = {key: each for key, each in numbers.items() if known.get(key) != each}
        steps = {key: len(self.client.get_metric_history(self.run_id, key)) if key in known else 0 for key in new}
        self.client.log_batch(self.run_id, [Metric(key, each, now, steps[key]) for key, each in new.items()])

    def go_on(self) -> None:
        """Mark the run as running, also if it had ended before."""
        self.client.update_run(self.run_id, "RUNNING")
        self.ended = False

    def interrupt(self) -> None:
        """Mark the run as one that can be continued."""
        self.client.set_terminated(self.run_id, "KILLED")

    def end(self, status: str, reason: str = "", last: Record | None = None) -> None:
        found = {key: (last or {}).get(key) for key in ("x_sha256", "y_sha256", "backend")}
        reason = reason[:LONGEST]
        for key, value in {"status": status, **found}.items():
            if value:
                self.client.set_tag(self.run_id, key, value)
        if reason != self.reason:
            self.client.set_tag(self.run_id, "reason", reason)
        self.client.set_terminated(self.run_id, "FAILED" if status == "failed" else "FINISHED")
        self.ended, self.status, self.reason = True, status, reason

    def ended_otherwise(self, status: str, reason: str) -> bool:
        """Whether MLflow has another ending than this one."""
        return self.ended and (self.status, self.reason) != (status, reason[:LONGEST])

    def keep_model(self, config: RunConfig, folder: RunFolder) -> None:
        """What the run in a folder has learned, if that is a model; once for the round that it has come to."""
        now = folder.saved_round()
        if self.client.get_run(self.run_id).data.tags.get("model") == f"of round {now}":
            return
        found = model_of(build_task(config), folder)
        if found is not None:
            log_model(self.client, self.experiment.pages.experiment_id, self.run_id, now, *found)
            self.client.set_tag(self.run_id, "model", f"of round {now}")


def metrics_of(record: Record, system: Record, start: int) -> "list[Metric]":
    """The numbers of a record, and those about the system beside it, as MLflow has them."""
    from mlflow.entities import Metric

    values = record | {f"system/{key}": value for key, value in system.items() if key != "round"}
    when = start + round(1000 * record["wall_seconds"])
    return [Metric(key, each, when, record["round"]) for key, each in values.items() if isinstance(each, int | float)]
