"""Figure 2, the left column: FedMBO with clients that differ more or less."""

from analysis import case_study
from analysis.claims import Claim
from analysis.reading import Study, Trial
from analysis.style import plt

SWEEPS = ("heterogeneity",)


def label(trial: Trial) -> str:
    digits = trial.param("data.partition.digits")
    return f"{digits} digit{'s' if digits > 1 else ''} per client"


def claims(study: Study) -> list[Claim]:
    return case_study.claims(study, label, [(1, 0), (2, 1), (3, 2)])


def draw(study: Study) -> plt.Figure:
    return case_study.draw(study, label)


def caption(study: Study) -> str:
    return (
        "Test accuracy of FedMBO (mean and standard deviation over seeds) against data epochs and communications. "
        "The more digits a client has, the more alike the clients are; 10 is the homogeneous case."
    )
