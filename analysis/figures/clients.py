"""Figure 2, the middle column: FedMBO with federations of different size."""

from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim
from fedmbo_ray.analysis.figures import case_study
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy, RecordedTrial

SWEEPS = ("clients",)


def label(trial: RecordedTrial) -> str:
    return f"{trial.param('clients.num_clients')} clients"


def claims(study: RecordedStudy) -> list[Claim]:
    return case_study.claims(study, label, [(1, 0), (2, 1)])


def draw(study: RecordedStudy) -> Figure:
    return case_study.draw(study, label)


def caption(study: RecordedStudy) -> str:
    return (
        "Test accuracy of FedMBO (mean and standard deviation over seeds) against data epochs and communications. "
        "A tenth of all clients takes part in a communication."
    )
