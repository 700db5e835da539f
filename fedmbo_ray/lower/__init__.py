"""Lower-level solvers by the name a config gives them; each has ``solve(clients, x, y) -> y⁺``."""

from typing import Annotated, Protocol

from torch import Tensor

from fedmbo_ray.federation import Clients
from fedmbo_ray.lower.accelerated_sgd import AcceleratedSGD
from fedmbo_ray.lower.fedavg import FedAvg
from fedmbo_ray.lower.fedlin import FedLin
from fedmbo_ray.lower.fedsvrg import FedSVRG
from fedmbo_ray.lower.minibatch_sgd import MinibatchSGD
from fedmbo_ray.registry import Component, Registry


class LowerSolver(Protocol):
    def solve(self, clients: Clients, x: Tensor, y: Tensor) -> Tensor:
        """An approximation of y*(x), started at y."""
        ...


LOWER = Registry(
    "lower solver",
    {
        "minibatch_sgd": MinibatchSGD,
        "accelerated_sgd": AcceleratedSGD,
        "fedavg": FedAvg,
        "fedsvrg": FedSVRG,
        "fedlin": FedLin,
    },
)

Lower = Annotated[LowerSolver, Component(LOWER)]
