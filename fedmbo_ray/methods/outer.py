"""What is done with a hypergradient: one step of the server, or FedNest's local steps."""

from functools import partial
from typing import Annotated, Any, ClassVar, Protocol

from torch import Tensor

from fedmbo_ray.cards import CODE, PAPER, Card, Cost
from fedmbo_ray.data import Draw, unstack
from fedmbo_ray.federation import Clients
from fedmbo_ray.oracles import grad_x_upper
from fedmbo_ray.registry import Component, Count, Registry, settings


class Outer(Protocol):
    def step(self, clients: Clients, x: Tensor, y: Tensor, h: Tensor, step_size: float) -> Tensor:
        """x^{k+1} from x^k, given the hypergradient h there."""
        ...


@settings
class Plain:
    """x − αh."""

    card: ClassVar[Card] = Card("Huang, Zhang, Ji 2023 (FedMBO)", PAPER, Cost("0", "0", "0"))

    def step(self, clients: Clients, x: Tensor, y: Tensor, h: Tensor, step_size: float) -> Tensor:
        return x - step_size * h


def local_steps(problem: Any, batches: Any, x: Tensor, y: Tensor, h: Tensor, step_size: float) -> Tensor:
    """Steps along ∇_x f_i(x_i, y; ξ) − ∇_x f_i(x, y; ξ) + h, the same ξ in both terms."""
    x_i = x
    for batch in unstack(batches):
        correction = grad_x_upper(problem, batch, x_i, y) - grad_x_upper(problem, batch, x, y)
        x_i = x_i - step_size * (correction + h)
    return x_i


@settings
class FedOut:
    """The mean over a cohort of x_i after τ local steps, in which only the direct gradient ∇_x f_i is taken anew.

    Each step has size α, so together they go about τ times as far as one. With τ = 1 it is the plain step, at the
    price of a communication.
    """

    card: ClassVar[Card] = Card("Tarzanagh et al. 2022 (FedNest)", CODE, Cost("1", "2*p + q", "p"))

    local_steps: Count  # τ
    batch_size: Count

    def step(self, clients: Clients, x: Tensor, y: Tensor, h: Tensor, step_size: float) -> Tensor:
        draw = Draw("validation", self.batch_size, count=self.local_steps)
        return clients.mean(partial(local_steps, step_size=step_size), clients.sample(), x, y, h, draw=draw)


OUTER = Registry("outer step", "outer", ("step",), {"plain": Plain, "fedout": FedOut})

OuterStep = Annotated[Outer, Component(OUTER)]
