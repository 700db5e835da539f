"""Figure 2, the left column: FedMBO with clients that differ more or less."""

from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim
from fedmbo_ray.analysis.figures import case_study
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy, RecordedTrial

SWEEPS = ("heterogeneity",)


def label(trial: RecordedTrial) -> str:
    digits = trial.param("data.partition.digits")
    return f"{digits} digit{'s' if digits > 1 else ''} per client"


def claims(study: RecordedStudy) -> list[Claim]:
    return case_study.claims(study, label, [(1, 0), (2, 1), (3, 2)])


def draw(study: RecordedStudy) -> Figure:
    return case_study.draw(study, label)


def caption(study: RecordedStudy) -> str:
    return (
        "Test accuracy of FedMBO (mean and standard deviation over seeds) against data epochs and communications. "
        "The more digits a client has, the more alike the clients are; 10 is the homogeneous case."
    )
