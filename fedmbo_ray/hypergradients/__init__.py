"""Hypergradient estimators by the name a config gives them; each has ``estimate(clients, x, y, ℓ) -> h``."""

from typing import Annotated, Protocol

from torch import Tensor

from fedmbo_ray.federation import Clients
from fedmbo_ray.hypergradients.exact import Exact
from fedmbo_ray.hypergradients.ihgp import IHGP
from fedmbo_ray.hypergradients.ihgp_sum import IHGPSum
from fedmbo_ray.hypergradients.local_neumann import LocalNeumann
from fedmbo_ray.hypergradients.phe import PHE
from fedmbo_ray.hypergradients.phe_sum import PHESum
from fedmbo_ray.registry import Component, Registry


class HypergradientEstimator(Protocol):
    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor) -> Tensor:
        """An estimate of ∇_x f − ∇²_xy g [∇²_yy g]⁻¹ ∇_y f at (x, y)."""
        ...


HYPERGRADIENTS = Registry(
    "hypergradient estimator",
    {
        "phe": PHE,
        "phe_sum": PHESum,
        "ihgp": IHGP,
        "ihgp_sum": IHGPSum,
        "local_neumann": LocalNeumann,
        "exact": Exact,
    },
)

Hypergradient = Annotated[HypergradientEstimator, Component(HYPERGRADIENTS)]
