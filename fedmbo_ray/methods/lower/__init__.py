"""Lower-level solvers by the name a config gives them; each has ``solve(clients, x, y) -> y⁺``."""

from typing import Annotated, Any, Protocol

from fedmbo_ray.lower.accelerated_sgd import AcceleratedSGD
from fedmbo_ray.lower.fedavg import FedAvg
from fedmbo_ray.lower.fedlin import FedLin
from fedmbo_ray.lower.fedsvrg import FedSVRG
from fedmbo_ray.lower.minibatch_sgd import MinibatchSGD
from fedmbo_ray.lower.proxskip import ProxSkip
from fedmbo_ray.lower.scaffold import Scaffold
from fedmbo_ray.registry import Component, Registry


class LowerSolver(Protocol):
    def solve(self, *args: Any, **kwargs: Any) -> Any:
        """solve(clients, x, y) approximates y*(x), started at y; with memory (see memory.py) it keeps some."""
        ...


LOWER = Registry(
    "lower solver",
    "lower",
    ("solve",),
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
