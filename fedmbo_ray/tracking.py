"""A sweep's folder, shown in MLflow: one run for the sweep, one below it for each trial, one below that for each seed.

The folder is the truth, MLflow a picture of it that is brought up to date again and again. What a server has is asked
of the server, so that a picture can be continued by anybody at any time: nothing is lost while it is away, and
nothing is told twice.
"""

import contextlib
import getpass
import json
import logging
import os
import platform
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import yaml

from fedmbo_ray import __version__
from fedmbo_ray.building import build_task
from fedmbo_ray.checkpoints import Record
from fedmbo_ray.models import model_of
from fedmbo_ray.sweeps.config import Sweep
from fedmbo_ray.sweeps.folder import STATUSES, SweepFolder, TrialFolder
from fedmbo_ray.sweeps.ranking import Standing, ranked

ENVIRONMENT = {  # a server that is away is to be found out soon; we try again ourselves
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
SECONDS_BETWEEN_LOOKS = 2.0
PATIENCE = 60.0  # seconds for a server to come back when everything else is done
PACKAGES = ("ray", "torch", "torchvision", "mlflow", "numpy")
BATCH = 900  # metrics in one request; MLflow takes a thousand


def default_uri() -> str:
    return f"sqlite:///{Path('mlflow.db').absolute()}"


class Tracker:
    """Brings MLflow up to date with a sweep's folder; every method may fail, and be called again."""

    def __init__(self, sweep: Sweep, folder: SweepFolder, command: str) -> None:
        os.environ.update({key: value for key, value in ENVIRONMENT.items() if key not in os.environ})
        self.sweep, self.folder, self.command = sweep, folder, command
        self.uri = sweep.tune.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or default_uri()
        self.client: Any = None
        self.experiment_id = ""
        self.runs: dict[str, Shown] = {}

    @property
    def page(self) -> str:
        """Of the sweep's run, behind the address of the user interface."""
        return f"#/experiments/{self.experiment_id}/runs/{self.runs[''].run_id}"

    def connect(self) -> None:
        """Find the experiment and the runs that it has of this sweep, or make them."""
        from mlflow import MlflowClient  # takes seconds to import

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.ERROR)  # databases made, experiments created
        self.client = self.client or MlflowClient(self.uri)
        name = self.sweep.tune.experiment or self.folder.name
        found = self.client.get_experiment_by_name(name)
        if found is None:
            local = self.uri.startswith("sqlite:")
            place = Path("mlartifacts").absolute().as_uri() if local else None
            kind = {"mlflow.experimentKind": "custom_model_development"}  # or the pages are those for language models
            self.experiment_id = self.client.create_experiment(name, artifact_location=place, tags=kind)
        else:
            self.experiment_id = found.experiment_id
        for run in self._existing():
            self.runs[run.data.tags["fedmbo.key"]] = Shown.of(run)
        if "" not in self.runs:
            self.runs[""] = self._create("", self.folder.path.name, None, {})
        if not self.runs[""].described:
            self._describe_sweep(self.runs[""])

    def _existing(self) -> list[Any]:
        runs, token = [], None
        while True:
            found = self.client.search_runs(
                [self.experiment_id],
                f"tags.`fedmbo.sweep` = '{self.folder.identity}'",
                max_results=1000,
                page_token=token,
            )
            runs += list(found)
            token = found.token
            if not token:
                return runs

    def _create(self, key: str, name: str, parent: str | None, tags: dict[str, str]) -> "Shown":
        everywhere = {"fedmbo.sweep": self.folder.identity, "fedmbo.key": key, "mlflow.source.name": "fedmbo_ray.tune"}
        everywhere |= {"mlflow.source.type": "LOCAL", "mlflow.user": user(), **surroundings()}
        nested = {"mlflow.parentRunId": parent} if parent else {}
        return Shown.of(self.client.create_run(self.experiment_id, tags=everywhere | nested | tags, run_name=name))

    def _describe_sweep(self, parent: "Shown") -> None:
        self.client.log_text(parent.run_id, self.folder.sweep_file.read_text(), "sweep.yaml")
        space = {each.path: f"{each.kind} {list(each.values)}" for each in self.sweep.dims}
        self._log_params(parent.run_id, space | flat({"tune": self.sweep.plain()["tune"]}))
        self._note_described(parent)

    def update(self) -> None:
        """Tell MLflow what is new."""
        if "" not in self.runs:
            self.connect()
        for trial in self.folder.trials():
            self._update_trial(trial)

    def _update_trial(self, trial: TrialFolder) -> None:
        shown = self.runs.get(trial.name)
        if shown is not None and shown.ended:
            return
        status = trial.status  # before the records: none comes after it
        if shown is None:
            shown = self.runs[trial.name] = self._create(
                trial.name, trial.label, self.runs[""].run_id, {"trial": trial.name}
            )
        if not shown.described:
            self._describe(shown, trial, 0)
        if trial.seeds > 1:
            self._update_seeds(trial, shown, status)
        self._send(shown, trial.records(), trial.system())
        if status in STATUSES:
            lasts = [run.records()[-1] for run in trial.runs if run.records()]
            self._end(shown, status, trial.reason, lasts[0] if len(lasts) == 1 else None)

    def _update_seeds(self, trial: TrialFolder, parent: "Shown", status: str) -> None:
        for seed, run in enumerate(trial.runs):
            key = f"{trial.name}/{seed}"
            if key not in self.runs:
                tags = {"trial": trial.name, "seed": str(seed)}
                self.runs[key] = self._create(key, f"seed {seed}", parent.run_id, tags)
            shown, records = self.runs[key], run.records()
            if not shown.described:
                self._describe(shown, trial, seed)
            self._send(shown, records, [])
            if status in STATUSES and not shown.ended:
                last = records[-1] if records else {}
                self._end(shown, last.get("status", status), last.get("reason", ""), last)

    def _describe(self, shown: "Shown", trial: TrialFolder, seed: int) -> None:
        """What a run is: its config as parameters and as a file, its data."""
        config, run_id = self.sweep.config(trial.point, seed), shown.run_id
        resolved = config.resolved()
        self.client.log_text(run_id, yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True), "config.yaml")
        if config.data is not None:
            self.client.log_inputs(run_id, [data_set(config.data)])
        values = {path: value for path, value in trial.point.items() if not isinstance(value, dict)}
        others = {key: value for key, value in flat(resolved).items() if not _within(key, values)}
        self._log_params(run_id, others | values)
        here = f"#/experiments/{self.experiment_id}/runs/{run_id}/artifacts/config.yaml"
        note = f"{trial.label}\n\nIts [config]({here}) is what `python -m fedmbo_ray.run config.yaml` repeats."
        self.client.set_tag(run_id, "mlflow.note.content", note)
        self._note_described(shown)

    def _note_described(self, shown: "Shown") -> None:
        self.client.set_tag(shown.run_id, "fedmbo.described", "yes")
        shown.described = True

    def _log_params(self, run_id: str, params: dict[str, Any]) -> None:
        from mlflow.entities import Param

        entries = [Param(key, str(value)[:6000]) for key, value in params.items()]
        for start in range(0, len(entries), 100):
            self.client.log_batch(run_id, params=entries[start : start + 100])

    def _send(self, shown: "Shown", records: list[Record], system: list[Record]) -> None:
        """All records that MLflow does not have; `round` goes with each, and tells how far it is."""
        from mlflow.entities import Metric

        batch: list[Any] = []
        beside = {each["round"]: each for each in system}
        for record in records:
            if record["round"] <= shown.round:
                continue
            when = shown.start_time + round(1000 * record["wall_seconds"])
            values = {**record, **{f"system/{key}": value for key, value in beside.get(record["round"], {}).items()}}
            values.pop("system/round", None)
            metrics = [
                Metric(key, value, when, record["round"])
                for key, value in values.items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            ]
            if len(batch) + len(metrics) > BATCH:
                self.client.log_batch(shown.run_id, batch)
                batch = []
            batch += metrics
            shown.sent = record["round"]
        if batch:
            self.client.log_batch(shown.run_id, batch)
        shown.round = max(shown.round, shown.sent)

    def _end(self, shown: "Shown", status: str, reason: str, last: Record | None = None) -> None:
        digests = {key: value for key, value in (last or {}).items() if key in ("x_sha256", "y_sha256", "backend")}
        for key, value in {"status": status, "reason": reason[:5000], **digests}.items():
            if value:
                self.client.set_tag(shown.run_id, key, value)
        self.client.set_terminated(shown.run_id, "FAILED" if status == "failed" else "FINISHED")
        shown.ended = True

    def interrupt(self) -> None:
        """The sweep has not come to its end: it can be continued."""
        if "" in self.runs:
            self.client.set_terminated(self.runs[""].run_id, "KILLED")

    def conclude(self) -> None:
        """The sweep's own run at the end: the best trial, the ranking, what to do with them."""
        self.update()
        parent, tune = self.runs[""], self.sweep.tune
        trials = ranked(self.folder, tune)
        best = next((each for each in trials if each.score is not None), None)
        self.client.log_text(parent.run_id, ranking_rows(trials, tune.metric), "ranking.md")
        counts = {f"trials_{status}": sum(t.status == status for t in trials) for status in STATUSES}
        for name, count in counts.items():
            self.client.log_metric(parent.run_id, name, count)
        if best is not None and best.score is not None:
            self.client.log_metric(parent.run_id, f"best_{tune.metric}", best.score)
            self.client.log_text(parent.run_id, self.folder.best_file.read_text(), "best.yaml")
            self.client.set_tag(self.runs[best.name].run_id, "best", "yes")
            self._log_model(best)
        self.client.set_tag(parent.run_id, "mlflow.note.content", self._note(best, trials))
        self._end(parent, "finished", "")

    def _log_model(self, best: Standing) -> None:
        """The best trial's classifier, as a graph that needs none of our code, with its signature."""
        import mlflow
        import mlflow.pytorch
        import torch

        run_id = self.runs[best.name].run_id
        if "model" in self.client.get_run(run_id).data.tags:
            return
        found = model_of(build_task(self.sweep.config(best.point)), self.folder.trial(best.name).run(0))
        if found is None:
            return
        module, example = found
        output = module(torch.from_numpy(example)).detach().numpy()
        mlflow.set_tracking_uri(self.uri)
        with warnings.catch_warnings(), mlflow.start_run(run_id=run_id):
            warnings.simplefilter("ignore")
            mlflow.pytorch.log_model(
                module,
                name="model",
                signature=mlflow.models.infer_signature(example, output),
                input_example=example,
                pip_requirements=[f"torch=={torch.__version__.split('+')[0]}"],
                serialization_format="pt2",
            )
        self.client.set_tag(run_id, "model", "yes")

    def _note(self, best: Standing | None, trials: list[Standing]) -> str:
        """The sweep's description: its best trial, where to look, the command."""
        runs, shown = f"#/experiments/{self.experiment_id}/runs", [self.runs[each.name].run_id for each in trials[:20]]
        which = f"runs={_quoted(shown)}&experiments={_quoted([self.experiment_id])}"
        metric = self.sweep.tune.metric
        chart = f"#/metric?{which}&metric={_quoted(metric)}&plot_metric_keys={_quoted([metric])}&plot_layout=%7B%7D"
        parts = [
            f"[{metric} against rounds]({chart}&x_axis=step&y_axis_scale=log), [comparison](#/compare-runs?{which})"
        ]
        if best is not None:
            page = f"[{best.label}]({runs}/{self.runs[best.name].run_id})"
            config = f"[its config]({runs}/{self.runs[''].run_id}/artifacts/best.yaml)"
            parts.insert(0, f"Best of {len(trials)} trials: {page} with {metric} {best.score:.5g}, {config}.")
        return "\n\n".join([*parts, ranking_rows(trials[:5], metric), f"`{self.command}`"])


class Shown:
    """A run of MLflow's, and how far it is."""

    def __init__(self, run_id: str, start_time: int, round: int, described: bool, ended: bool) -> None:
        self.run_id, self.start_time, self.round = run_id, start_time, round
        self.described, self.ended, self.sent = described, ended, round

    @staticmethod
    def of(run: Any) -> "Shown":
        data, ended = run.data, run.info.status == "FINISHED" and run.data.tags.get("fedmbo.key") != ""
        described = "fedmbo.described" in data.tags
        return Shown(run.info.run_id, run.info.start_time, int(data.metrics.get("round", -1)), described, ended)


class Following:
    """Keeps MLflow up to date in a thread of its own, while a sweep runs; what fails is tried again."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.over, self.away = tracker, threading.Event(), False
        self.thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "Following":
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.over.set()
        self.thread.join(timeout=PATIENCE)
        if kind is not None:
            self.attempt(self.tracker.interrupt)

    def _follow(self) -> None:
        while not self.over.wait(SECONDS_BETWEEN_LOOKS):
            self.attempt(self.tracker.update)

    def attempt(self, step: Any) -> bool:
        """Whether it went well; a server that is away is told of once."""
        try:
            step()
        except Exception as error:  # of MLflow, of its database, of the network
            if not self.away:
                said = " ".join(str(error).split())[:200]
                print(
                    f"MLflow at {self.tracker.uri} is away, records wait in the sweep's folder ({said})",
                    file=sys.stderr,
                )
            self.away = True
            self.tracker.runs.clear()  # what it has after all is to be asked again
            return False
        if self.away:
            print(f"MLflow at {self.tracker.uri} is back", file=sys.stderr)
        self.away = False
        return True

    def conclude(self) -> bool:
        """Bring everything to MLflow; False if it stays away."""
        self.over.set()
        self.thread.join(timeout=PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while not self.attempt(self.tracker.conclude):
            if time.monotonic() > deadline:
                return False
            time.sleep(1)
        return True


def ranking_rows(trials: list[Standing], metric: str) -> str:
    """A table in Markdown."""
    rows = [f"| {each.name} | {each.label} | {each.score} | {each.round} | {each.status} |" for each in trials]
    return "\n".join([f"| trial | point | {metric} | round | status |", "|---|---|---|---|---|", *rows])


def _within(key: str, paths: Iterable[str]) -> bool:
    return any(key == path or key.startswith(f"{path}.") for path in paths)


def _quoted(value: Any) -> str:
    return quote(json.dumps(value))


def flat(fields: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Key paths and values."""
    found: dict[str, Any] = {}
    for key, value in fields.items():
        here = f"{path}{key}"
        found |= flat(value, f"{here}.") if isinstance(value, dict) else {here: value}
    return found


def data_set(config: Any) -> Any:
    """A run's data set, as MLflow has it."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    from fedmbo_ray.datasets import data_root, load

    data = load(config.name, config.root or data_root())
    profile = {"train": len(data.train_targets), "test": len(data.test_targets), "classes": data.num_classes}
    source = json.dumps({"name": config.name})
    entity = Dataset(config.name, data.digest[:32], "local", source, profile=json.dumps(profile))
    return DatasetInput(entity, [InputTag("mlflow.data.context", "training")])


@cache
def surroundings() -> dict[str, str]:
    """Where and with what a run was made."""
    found = {f"version.{name}": version(name) for name in PACKAGES}
    found |= {"version.fedmbo_ray": __version__, "version.python": platform.python_version()}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        here = Path(__file__).parent
        said = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        found["mlflow.source.git.commit"] = said.stdout.strip()
    return found | {"host": platform.node()}


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "unknown"
