"""Figure 2, the middle column: FedMBO with federations of different size."""

from analysis import case_study
from analysis.claims import Claim
from analysis.reading import Study, Trial
from analysis.style import plt

SWEEPS = ("clients",)


def label(trial: Trial) -> str:
    return f"{trial.param('clients.num_clients')} clients"


def claims(study: Study) -> list[Claim]:
    return case_study.claims(study, label, [(1, 0), (2, 1)])


def draw(study: Study) -> plt.Figure:
    return case_study.draw(study, label)


def caption(study: Study) -> str:
    return (
        "Test accuracy of FedMBO (mean and standard deviation over seeds) against data epochs and communications. "
        "A tenth of all clients takes part in a communication."
    )
