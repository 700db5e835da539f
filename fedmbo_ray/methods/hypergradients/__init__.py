"""Hypergradient estimators by the name a config gives them."""

from typing import Annotated

from fedmbo_ray.core.components import Component
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.methods.base import HypergradientEstimator
from fedmbo_ray.methods.hypergradients.direct import Direct
from fedmbo_ray.methods.hypergradients.exact import Exact
from fedmbo_ray.methods.hypergradients.ihgp import IHGP
from fedmbo_ray.methods.hypergradients.ihgp_sum import IHGPSum
from fedmbo_ray.methods.hypergradients.linear_sgd import LinearSGD
from fedmbo_ray.methods.hypergradients.local_neumann import LocalNeumann
from fedmbo_ray.methods.hypergradients.phe import PHE
from fedmbo_ray.methods.hypergradients.phe_sum import PHESum

HYPERGRADIENTS = Registry(
    "hypergradient estimator",
    "hypergradients",
    HypergradientEstimator,
    {
        "phe": PHE,
        "phe_sum": PHESum,
        "ihgp": IHGP,
        "ihgp_sum": IHGPSum,
        "local_neumann": LocalNeumann,
        "linear_sgd": LinearSGD,
        "exact": Exact,
        "direct": Direct,
    },
)

Hypergradient = Annotated[HypergradientEstimator, Component(HYPERGRADIENTS)]
