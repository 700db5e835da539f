"""Figure 2, the right column: FedMBO with more or fewer of the clients in every communication."""

from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim
from fedmbo_ray.analysis.figures import case_study
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy, RecordedTrial

SWEEPS = ("participation",)


def label(trial: RecordedTrial) -> str:
    share = 100 * trial.param("clients.cohort_size") / trial.param("clients.num_clients")
    return f"{share:.0f} % of clients"


def claims(study: RecordedStudy) -> list[Claim]:
    """The paper sees 50 % in front, and all of the clients nowhere: what they add is reported, too.

    For the same samples both orders are tested: that one is not shown does not show the other.
    """
    larger, smaller = [(1, 0), (2, 1), (3, 2)], [(0, 1), (1, 2), (2, 3)]
    return [
        *case_study.claims(study, label, larger),
        *case_study.claims(study, label, larger, "data_epochs"),
        *case_study.claims(study, label, smaller, "data_epochs"),
    ]


def draw(study: RecordedStudy) -> Figure:
    return case_study.draw(study, label)


def caption(study: RecordedStudy) -> str:
    return (
        "Test accuracy of FedMBO (mean and standard deviation over seeds) against data epochs and communications. A "
        "larger share costs more samples for every communication."
    )
