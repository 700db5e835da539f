"""Bilevel problems by the name a config gives them."""

from collections.abc import Mapping

from fedmbo_ray.core.registry import Registry
from fedmbo_ray.problems.auc import AUC
from fedmbo_ray.problems.base import ProblemSettings, needs_data
from fedmbo_ray.problems.fair_reweighting import FairReweighting
from fedmbo_ray.problems.hyper_cleaning import HyperCleaning
from fedmbo_ray.problems.hyper_representation import HyperRepresentation
from fedmbo_ray.problems.loss_tuning import LossTuning
from fedmbo_ray.problems.personal_heads import PersonalHeads
from fedmbo_ray.problems.quadratic import Quadratic
from fedmbo_ray.problems.regularization import Regularization
from fedmbo_ray.problems.ridge_head import RidgeHead
from fedmbo_ray.problems.risk_averse import RiskAverse
from fedmbo_ray.problems.robust_clients import RobustClients
from fedmbo_ray.problems.two_losses import settings_of

PROBLEMS = Registry(
    "problem",
    "problems",
    ProblemSettings,
    {
        "quadratic": Quadratic,
        "hyper_representation": HyperRepresentation,
        "personal_heads": PersonalHeads,
        "hyper_cleaning": HyperCleaning,
        "ridge_head": RidgeHead,
        "loss_tuning": LossTuning,
        "regularization": Regularization,
        "fair_reweighting": FairReweighting,
        "robust_clients": RobustClients,
        "auc": AUC,
        "risk_averse": RiskAverse,
    },
    settings_of,
)


def makes_own_data(problem: object) -> bool:
    """Whether a problem, as a config gives it (a name, a mapping, settings), has no use for a data set."""
    name = problem.get("name") if isinstance(problem, Mapping) else problem
    settings = PROBLEMS[name] if isinstance(name, str) and name in PROBLEMS else type(problem)
    return not needs_data(settings)
