"""A sweep's folder, shown in MLflow: one run for the sweep, one below it for each trial, one below that for each seed.

The folder is the truth, MLflow a picture of it that is brought up to date again and again. What a server has is asked
of the server, so that a picture can be continued by anybody at any time: nothing is lost while it is away, and
nothing is told twice.
"""

from typing import Any, Protocol

from fedmbo_ray.building import build_task
from fedmbo_ray.checkpoints import Record, to_yaml
from fedmbo_ray.sweeps.config import Sweep
from fedmbo_ray.sweeps.folder import STATUSES, SweepFolder, TrialFolder
from fedmbo_ray.sweeps.ranking import ranked
from fedmbo_ray.tracking.describing import (
    Pages,
    data_set,
    flat,
    parameters,
    ranking_rows,
    sweep_note,
    trial_note,
)
from fedmbo_ray.tracking.experiment import Experiment
from fedmbo_ray.tracking.model import log_model, model_of

BATCH = 900  # metrics in one request; MLflow takes a thousand


class Above(Protocol):
    """A study that a sweep is a part of."""

    @property
    def identity(self) -> str: ...

    def run_id(self, experiment: Experiment) -> str:
        """Of the run that the sweep's stands below."""
        ...


class Tracker:
    """Brings MLflow up to date with a sweep's folder; every method may fail, and be called again."""

    def __init__(self, sweep: Sweep, folder: SweepFolder, command: str, study: "Above | None" = None) -> None:
        self.sweep, self.folder, self.command, self.study = sweep, folder, command, study
        self.experiment = Experiment(sweep.tune.experiment or folder.name, sweep.tune.tracking_uri)
        self.runs: dict[str, Shown] = {}

    @property
    def uri(self) -> str:
        return self.experiment.uri

    @property
    def client(self) -> Any:
        return self.experiment.client

    @property
    def pages(self) -> Pages:
        return self.experiment.pages

    @property
    def page(self) -> str:
        """Of the sweep's run."""
        return self.pages.run(self.runs[""].run_id)

    def connect(self) -> None:
        """Find the experiment and the runs that it has of this sweep, or make them."""
        self.experiment.connect()
        for run in self.experiment.runs(f"tags.`fedmbo.sweep` = '{self.folder.identity}'"):
            self.runs[run.data.tags["fedmbo.key"]] = Shown.of(run)
        above = self.study.run_id(self.experiment) if self.study is not None else None
        if "" not in self.runs:
            self.runs[""] = self._create("", self.folder.path.name, above, {})
        self._goes_on(above)
        if not self.runs[""].described:
            self._describe_sweep(self.runs[""])

    def _create(self, key: str, name: str, parent: str | None, tags: dict[str, str]) -> "Shown":
        known_by = {"fedmbo.sweep": self.folder.identity, "fedmbo.key": key, "mlflow.source.name": "fedmbo_ray.tune"}
        of_study = {"fedmbo.study": self.study.identity} if self.study is not None else {}
        return Shown.of(self.experiment.create(name, parent, known_by | of_study | tags))

    def _goes_on(self, above: str | None) -> None:
        """The sweep, and the study above it: they may have been interrupted."""
        for run_id in filter(None, [self.runs[""].run_id, above]):
            self.client.update_run(run_id, "RUNNING")

    def _describe_sweep(self, parent: "Shown") -> None:
        self.client.log_text(parent.run_id, self.folder.sweep_file.read_text(), "sweep.yaml")
        space = {each.path: f"{each.kind} {list(each.values)}" for each in self.sweep.dims}
        self.experiment.log_params(parent.run_id, space | flat({"tune": self.sweep.plain()["tune"]}))
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
        moving = self.sweep.tune.scheduler.copies and status not in STATUSES  # its point may still change
        if not shown.described and not moving:
            self._describe(shown, trial, 0)
            self.client.set_tag(shown.run_id, "mlflow.runName", trial.label)
        if trial.seeds > 1:
            self._update_seeds(trial, shown, status)
        system = trial.system()
        self._send(shown, trial.records(), system)
        if status in STATUSES:
            self.client.set_tag(shown.run_id, "nodes", ", ".join(dict.fromkeys(each["node"] for each in system)))
            self._end(shown, status, trial.reason, (trial.lasts() or [{}])[0] if trial.seeds == 1 else {})

    def _update_seeds(self, trial: TrialFolder, parent: "Shown", status: str) -> None:
        for seed in range(trial.seeds):
            run, key = trial.run(seed), f"{trial.name}/{seed}"
            if not run.path.exists():
                continue
            if key not in self.runs:
                tags = {"trial": trial.name, "seed": str(seed)}
                self.runs[key] = self._create(key, f"seed {seed}", parent.run_id, tags)
            shown, records = self.runs[key], run.records()
            if not shown.described and parent.described:
                self._describe(shown, trial, seed)
            self._send(shown, records, [])
            if status in STATUSES and not shown.ended:
                last = records[-1] if records else {}
                self._end(shown, last.get("status", status), last.get("reason", ""), last)

    def _describe(self, shown: "Shown", trial: TrialFolder, seed: int) -> None:
        """What a run is: its config as parameters and as a file, its data."""
        config, run_id = self.sweep.config(trial.point, seed), shown.run_id
        self.client.log_text(run_id, to_yaml(config.resolved()).decode(), "config.yaml")
        if config.data is not None:
            self.client.log_inputs(run_id, [data_set(config.data)])
        self.experiment.log_params(run_id, parameters(config, trial.point))
        self.client.set_tag(run_id, "mlflow.note.content", trial_note(self.pages, run_id, trial.label))
        self._note_described(shown)

    def _note_described(self, shown: "Shown") -> None:
        self.client.set_tag(shown.run_id, "fedmbo.described", "yes")
        shown.described = True

    def _send(self, shown: "Shown", records: list[Record], system: list[Record]) -> None:
        """All records that MLflow does not have; `round` goes with each, and tells how far it is."""
        beside = {each["round"]: each for each in system}
        batch: list[Any] = []
        for record in records:
            if record["round"] > shown.round:
                metrics = metrics_of(record, beside.get(record["round"], {}), shown.start_time)
                if len(batch) + len(metrics) > BATCH:
                    self.client.log_batch(shown.run_id, batch)
                    batch = []
                batch += metrics
        if batch:
            self.client.log_batch(shown.run_id, batch)
            shown.round = records[-1]["round"]

    def _end(self, shown: "Shown", status: str, reason: str, last: Record) -> None:
        found = {key: last.get(key) for key in ("x_sha256", "y_sha256", "backend")}
        for key, value in {"status": status, "reason": reason[:5000], **found}.items():
            if value:
                self.client.set_tag(shown.run_id, key, value)
        self.client.set_terminated(shown.run_id, "FAILED" if status == "failed" else "FINISHED")
        shown.ended = True

    def interrupt(self) -> None:
        """The sweep has not come to its end: it can be continued."""
        if "" in self.runs:
            self.client.set_terminated(self.runs[""].run_id, "KILLED")
            if self.study is not None:
                self.client.set_terminated(self.study.run_id(self.experiment), "KILLED")

    def conclude(self) -> None:
        """The sweep's own run at the end: the best trial, the ranking, what to do with them."""
        self.update()
        parent, metric, trials = self.runs[""].run_id, self.sweep.tune.metric, ranked(self.folder, self.sweep.tune)
        self.client.log_text(parent, ranking_rows(trials, metric), "ranking.md")
        for status in STATUSES:
            self.client.log_metric(parent, f"trials_{status}", sum(each.status == status for each in trials))
        if trials and (score := trials[0].score) is not None:
            self.client.log_metric(parent, f"best_{metric}", score)
            self.client.log_text(parent, self.folder.best_file.read_text(), "best.yaml")
            if self.study is None:
                self._mark_best(self.folder.trial(trials[0].name))
        run_ids = {key: shown.run_id for key, shown in self.runs.items()}
        note = sweep_note(self.pages, run_ids, trials, metric, self.command)
        self.client.set_tag(parent, "mlflow.note.content", note)
        self._end(self.runs[""], "finished", "", {})

    def _mark_best(self, trial: TrialFolder) -> None:
        """Tell it from the others, and from one that was the best before; keep its model."""
        run_id = self.runs[trial.name].run_id
        for run in self.experiment.runs(f"tags.`fedmbo.sweep` = '{self.folder.identity}' and tags.best = 'yes'"):
            if run.info.run_id != run_id:
                self.client.delete_tag(run.info.run_id, "best")
        self.client.set_tag(run_id, "best", "yes")
        if "model" in self.client.get_run(run_id).data.tags:
            return
        found = model_of(build_task(self.sweep.config(trial.point)), trial.run(0))
        if found is not None:
            log_model(self.uri, run_id, *found)
            self.client.set_tag(run_id, "model", "yes")


class Shown:
    """A run of MLflow's, and how far it is."""

    def __init__(self, run_id: str, start_time: int, round: int, described: bool, ended: bool) -> None:
        self.run_id, self.start_time, self.round = run_id, start_time, round
        self.described, self.ended = described, ended

    @staticmethod
    def of(run: Any) -> "Shown":
        data, ended = run.data, run.info.status == "FINISHED" and run.data.tags.get("fedmbo.key") != ""
        described = "fedmbo.described" in data.tags
        return Shown(run.info.run_id, run.info.start_time, int(data.metrics.get("round", -1)), described, ended)


def metrics_of(record: Record, system: Record, start: int) -> list[Any]:
    """The numbers of a record, and those about the system beside it, as MLflow has them."""
    from mlflow.entities import Metric

    values = record | {f"system/{key}": value for key, value in system.items() if key != "round"}
    when = start + round(1000 * record["wall_seconds"])
    return [Metric(key, each, when, record["round"]) for key, each in values.items() if isinstance(each, int | float)]
