"""Hypergradient estimators by the name a config gives them; each has ``estimate(clients, x, y, ℓ) -> h``."""

from typing import Annotated, Any, Protocol

from fedmbo_ray.hypergradients.exact import Exact
from fedmbo_ray.hypergradients.ihgp import IHGP
from fedmbo_ray.hypergradients.ihgp_sum import IHGPSum
from fedmbo_ray.hypergradients.linear_sgd import LinearSGD
from fedmbo_ray.hypergradients.local_neumann import LocalNeumann
from fedmbo_ray.hypergradients.phe import PHE
from fedmbo_ray.hypergradients.phe_sum import PHESum
from fedmbo_ray.registry import Component, Registry


class HypergradientEstimator(Protocol):
    def estimate(self, *args: Any, **kwargs: Any) -> Any:
        """estimate(clients, x, y, ℓ) of ∇_x f − ∇²_xy g [∇²_yy g]⁻¹ ∇_y f at (x, y); see memory.py, too."""
        ...


HYPERGRADIENTS = Registry(
    "hypergradient estimator",
    "hypergradients",
    ("estimate",),
    {
        "phe": PHE,
        "phe_sum": PHESum,
        "ihgp": IHGP,
        "ihgp_sum": IHGPSum,
        "local_neumann": LocalNeumann,
        "linear_sgd": LinearSGD,
        "exact": Exact,
    },
)

Hypergradient = Annotated[HypergradientEstimator, Component(HYPERGRADIENTS)]
