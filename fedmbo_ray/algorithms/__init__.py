"""Algorithms by the name a config gives them; a state is a dict of tensors with at least x and y."""

from typing import Annotated, Protocol

from torch import Tensor

from fedmbo_ray.algorithms.double_loop import DoubleLoop
from fedmbo_ray.federation import Clients
from fedmbo_ray.registry import Component, Registry

State = dict[str, Tensor]


class Algorithm(Protocol):
    def init(self, x: Tensor, y: Tensor) -> State: ...

    def round(self, clients: Clients, state: State) -> State:
        """One outer iteration; returns a new state and leaves the old one as it was."""
        ...


ALGORITHMS = Registry("algorithm", {"double_loop": DoubleLoop})

AnyAlgorithm = Annotated[Algorithm, Component(ALGORITHMS)]
