"""A sweep's folder, shown in MLflow: one run for the sweep, one below it for each trial, one below that for each seed.

The folder is the truth, MLflow a picture of it that is brought up to date again and again.
"""

from typing import TYPE_CHECKING, Protocol

from fedmbo_ray.core.compat import import_export
from fedmbo_ray.core.markup import plain_markdown
from fedmbo_ray.sweeps.folder import STATUSES, SweepFolder, TrialFolder
from fedmbo_ray.sweeps.ranking import ranked
from fedmbo_ray.sweeps.schema import SweepPlan
from fedmbo_ray.sweeps.space import corners
from fedmbo_ray.tracking.client_picture import ClientPictures, what_clients_have
from fedmbo_ray.tracking.metadata import Pages, flat, ranking_rows, sweep_note
from fedmbo_ray.tracking.mlflow_experiment import MlflowExperiment
from fedmbo_ray.tracking.tracked_run import KEY, WHOLE_SWEEP, TrackedRun

if TYPE_CHECKING:
    from mlflow import MlflowClient


class Above(Protocol):
    """A study that a sweep is a part of."""

    @property
    def identity(self) -> str: ...

    def run_id(self, experiment: MlflowExperiment) -> str:
        """The id of the parent of the sweep's run."""
        ...

    def predict(self, tracker: "SweepTracker") -> None:
        """Send the predictions of theory to MLflow, next to the means of every trial."""
        ...


class SweepTracker:
    """Brings MLflow up to date with a sweep's folder; every method may fail, and be called again."""

    def __init__(self, sweep: SweepPlan, folder: SweepFolder, command: str, study: Above | None = None) -> None:
        self.sweep, self.folder, self.command, self.study = sweep, folder, command, study
        self.experiment = MlflowExperiment(sweep.tune.experiment or folder.name, sweep.tune.tracking_uri)
        self.runs: dict[str, TrackedRun] = {}
        self.pictures = ClientPictures()
        configs = [sweep.config(point) for point in corners(sweep.dims)]
        self.keeps_model = (
            study is None and configs[0].data is not None
        )  # whether to keep the model of the best trial, if it has one
        alike = len({what_clients_have(config) for config in configs}) == 1
        self.all_trials = configs[0] if alike else None  # an example, if clients have the same data in all trials

    @property
    def uri(self) -> str:
        return self.experiment.uri

    @property
    def client(self) -> "MlflowClient":
        return self.experiment.client

    @property
    def pages(self) -> Pages:
        return self.experiment.pages

    @property
    def page(self) -> str:
        """The page of the sweep's run."""
        return self.pages.run(self.runs[WHOLE_SWEEP].run_id)

    def forget(self) -> None:
        self.runs.clear()

    def prepare(self) -> None:
        self.experiment.open()
        if self.keeps_model:
            import_export()

    def connect(self) -> None:
        """Find the experiment and the runs that it has of this sweep, or make them."""
        self.experiment.connect()
        for run in self.experiment.runs(f"tags.`fedmbo.sweep` = '{self.folder.identity}'"):
            self.runs[run.data.tags[KEY]] = TrackedRun(self.experiment, run)
        above = self.study.run_id(self.experiment) if self.study is not None else None
        if WHOLE_SWEEP not in self.runs:
            self.runs[WHOLE_SWEEP] = self._create(
                WHOLE_SWEEP, self.folder.path.resolve().name or self.folder.name, above, {}
            )
        self.runs[WHOLE_SWEEP].go_on()
        if above is not None:  # it may have been interrupted
            self.client.update_run(above, "RUNNING")
        if not self.runs[WHOLE_SWEEP].described:
            self._describe_sweep(self.runs[WHOLE_SWEEP])

    def _create(self, key: str, name: str, parent: str | None, tags: dict[str, str]) -> TrackedRun:
        known_by = {"fedmbo.sweep": self.folder.identity, KEY: key, "mlflow.source.name": "fedmbo_ray.tune"}
        of_study = {"fedmbo.study": self.study.identity} if self.study is not None else {}
        return TrackedRun(self.experiment, self.experiment.create(name, parent, known_by | of_study | tags))

    def _describe_sweep(self, parent: TrackedRun) -> None:
        self.client.log_text(parent.run_id, self.folder.sweep_file.read_text(), "sweep.yaml")
        space = {each.path: f"{each.kind} {list(each.values)}" for each in self.sweep.dims}
        self.experiment.log_params(parent.run_id, space | flat({"tune": self.sweep.plain()["tune"]}))
        if self.all_trials is not None:
            parent.show_clients(self.pictures.of(self.all_trials))
        parent.note_described()

    def update(self) -> None:
        """Send what is new to MLflow."""
        if WHOLE_SWEEP not in self.runs:
            self.connect()
        for trial in self.folder.trials():
            self._update_trial(trial)

    def _update_trial(self, trial: TrialFolder) -> None:
        shown = self.runs.get(trial.name)
        if shown is not None and shown.ended:
            return
        status = trial.status  # read before the records: if it has ended, all records are there
        if shown is None:
            parent, tags = self.runs[WHOLE_SWEEP].run_id, {"trial": trial.name}
            shown = self.runs[trial.name] = self._create(trial.name, trial.label, parent, tags)
        moving = self.sweep.tune.scheduler.copies and status not in STATUSES  # its point may still change
        if not shown.described and not moving:
            self._describe(shown, trial, 0, self.pictures if self.all_trials is None else None)
            self.client.set_tag(shown.run_id, "mlflow.runName", trial.label)
        if trial.seeds > 1:
            self._update_seeds(trial, shown, status)
        system = trial.system()
        shown.send(trial.records(), system)
        if status in STATUSES:
            self.client.set_tag(shown.run_id, "nodes", ", ".join(dict.fromkeys(each["node"] for each in system)))
            shown.end(status, trial.reason, (trial.lasts() or [{}])[0] if trial.seeds == 1 else {})

    def _update_seeds(self, trial: TrialFolder, parent: TrackedRun, status: str) -> None:
        for seed in range(trial.seeds):
            run, key = trial.run(seed), f"{trial.name}/{seed}"
            if not run.path.exists():
                continue
            if key not in self.runs:
                tags = {"trial": trial.name, "seed": str(seed)}
                self.runs[key] = self._create(key, f"seed {seed}", parent.run_id, tags)
            shown, records = self.runs[key], run.records()
            if not shown.described and parent.described:
                self._describe(shown, trial, seed, None)
            shown.send(records, [])
            if status in STATUSES and not shown.ended:
                last = records[-1] if records else {}
                shown.end(last.get("status", status), last.get("reason", ""), last)

    def _describe(self, shown: TrackedRun, trial: TrialFolder, seed: int, pictures: ClientPictures | None) -> None:
        shown.describe(self.sweep.config(trial.point, seed), trial.point, plain_markdown(trial.label), pictures)

    def interrupt(self) -> None:
        """Mark the sweep as one that has not ended and can be continued."""
        if WHOLE_SWEEP in self.runs:
            self.runs[WHOLE_SWEEP].interrupt()
            if self.study is not None:
                self.client.set_terminated(self.study.run_id(self.experiment), "KILLED")

    def conclude(self) -> None:
        """The sweep's own run at the end: the best trial, the ranking, what to do with them."""
        self.update()
        self._look_again()
        parent, metric = self.runs[WHOLE_SWEEP], self.sweep.tune.metric
        run_id, trials = parent.run_id, ranked(self.folder, self.sweep.tune)
        self.client.log_text(run_id, ranking_rows(trials, metric), "ranking.md")
        parent.tell({f"trials_{status}": sum(each.status == status for each in trials) for status in STATUSES})
        if trials and (score := trials[0].score) is not None:
            parent.tell({f"best_{metric}": score})
            self.client.log_text(run_id, self.folder.best_file.read_text(), "best.yaml")
            if self.study is None:
                self._mark_best(self.folder.trial(trials[0].name))
        run_ids = {key: shown.run_id for key, shown in self.runs.items()}
        note = sweep_note(self.pages, run_ids, trials, metric, self.command, parent.pictured)
        self.client.set_tag(run_id, "mlflow.note.content", note)
        parent.end("finished")

    def _look_again(self) -> None:
        """Send again how trials ended if this has changed, as with `halving` when a failed trial is run again."""
        for trial in self.folder.trials():
            shown = self.runs.get(trial.name)
            if shown is not None and shown.ended_otherwise(trial.status, trial.reason):
                for each in (shown, *(self.runs[key] for key in self.runs if key.startswith(f"{trial.name}/"))):
                    each.ended = False
                self._update_trial(trial)

    def _mark_best(self, trial: TrialFolder) -> None:
        """Mark the best trial, unmark one that was the best before, and keep the model."""
        best = self.runs[trial.name]
        for run in self.experiment.runs(f"tags.`fedmbo.sweep` = '{self.folder.identity}' and tags.best = 'yes'"):
            if run.info.run_id != best.run_id:
                self.client.delete_tag(run.info.run_id, "best")
        self.client.set_tag(best.run_id, "best", "yes")
        best.keep_model(self.sweep.config(trial.point), trial.run(0))
