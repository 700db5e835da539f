"""A study's own run in MLflow: above the runs of its sweeps, with what theory predicts and what came out."""

from pathlib import Path
from typing import TYPE_CHECKING

from fedmbo_ray.studies.plans import StudyFolder
from fedmbo_ray.studies.questions import QUESTIONS
from fedmbo_ray.sweeps.folder import TrialFolder
from fedmbo_ray.sweeps.schema import SweepPlan
from fedmbo_ray.theory.predictions import NotPredicted, constants, predicted
from fedmbo_ray.tracking.metadata import machine
from fedmbo_ray.tracking.mlflow_experiment import MlflowExperiment
from fedmbo_ray.tracking.sweep_tracker import SweepTracker

if TYPE_CHECKING:
    from mlflow import MlflowClient


class StudyRun:
    """Found again by the identity of the study's folder."""

    def __init__(self, name: str, folder: StudyFolder, command: str) -> None:
        self.name, self.folder, self.command = name, folder, command

    @property
    def identity(self) -> str:
        return self.folder.identity

    def run_id(self, experiment: MlflowExperiment) -> str:
        known = f"tags.`fedmbo.study` = '{self.identity}' and tags.`fedmbo.kind` = 'study'"
        runs = experiment.runs(known)
        if runs:
            return runs[0].info.run_id
        tags = {"fedmbo.study": self.identity, "fedmbo.kind": "study", "study": self.name, "scale": self.folder.scale}
        tags |= {"command": self.command, "mlflow.source.name": "fedmbo_ray.study", "machine": machine()}
        tags["question"] = QUESTIONS[self.name].text
        return experiment.create(self.folder.path.resolve().name, None, tags).info.run_id

    def predict(self, tracker: SweepTracker) -> None:
        """Beside the means of every trial of a sweep, what they must be if theory and code are right."""
        for trial in tracker.folder.trials():
            run_id = tracker.runs[trial.name].run_id
            if trial.done and "predicted" not in tracker.client.get_run(run_id).data.tags:
                said = tell_predictions(tracker.client, run_id, tracker.sweep, trial)
                tracker.client.set_tag(run_id, "predicted", said)

    def conclude(self, experiment: MlflowExperiment, files: Path, note: str, status: str) -> None:
        """What came out: figures and a verdict."""
        run_id = self.run_id(experiment)
        experiment.client.log_artifacts(run_id, str(files))
        experiment.client.set_tag(run_id, "mlflow.note.content", note)
        experiment.client.set_tag(run_id, "verdict", status)
        experiment.client.set_terminated(run_id, "FINISHED")


def tell_predictions(client: "MlflowClient", run_id: str, sweep: SweepPlan, trial: TrialFolder) -> str:
    """Whether there were any."""
    from mlflow.entities import Metric

    config, rounds = sweep.config(trial.point), {record["round"] for record in trial.records()}
    last = max(rounds, default=-1)
    try:
        series = [(k, figures) for k, figures in zip(range(last + 1), predicted(config), strict=False)]
    except NotPredicted as error:
        return str(error)
    metrics = [
        Metric(f"predicted_{name}", value, 0, k)
        for k, figures in series
        if k in rounds
        for name, value in {**figures, **(constants(config) if k == last else {})}.items()
    ]
    for start in range(0, len(metrics), 900):
        client.log_batch(run_id, metrics[start : start + 900])
    return "yes"
