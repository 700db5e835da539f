"""Lower-level solvers by the name a config gives them."""

from typing import Annotated

from fedmbo_ray.core.components import Component
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.methods.base import LowerSolver
from fedmbo_ray.methods.lower.accelerated_sgd import AcceleratedSGD
from fedmbo_ray.methods.lower.fedavg import FedAvg
from fedmbo_ray.methods.lower.fedlin import FedLin
from fedmbo_ray.methods.lower.fedsvrg import FedSVRG
from fedmbo_ray.methods.lower.minibatch_sgd import MinibatchSGD
from fedmbo_ray.methods.lower.proxskip import ProxSkip
from fedmbo_ray.methods.lower.scaffold import Scaffold

LOWER = Registry(
    "lower solver",
    "lower",
    LowerSolver,
    {
        "minibatch_sgd": MinibatchSGD,
        "accelerated_sgd": AcceleratedSGD,
        "fedavg": FedAvg,
        "fedsvrg": FedSVRG,
        "fedlin": FedLin,
        "scaffold": Scaffold,
        "proxskip": ProxSkip,
    },
)

Lower = Annotated[LowerSolver, Component(LOWER)]
