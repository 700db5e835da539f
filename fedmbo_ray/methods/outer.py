"""Outer steps: one step of the server along a hypergradient, FedNest's local steps, or none."""

from functools import partial
from typing import Annotated, ClassVar, Protocol

from torch import Tensor

from fedmbo_ray.core.cards import CODE, PAPER, STANDARD, Card, Cost
from fedmbo_ray.core.components import Component
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw, Samples, unstack
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import grad_x_upper


class Outer(Protocol):
    """The rule for x^{k+1}, given a hypergradient."""

    def step(self, clients: Clients, x: Tensor, y: Tensor, h: Tensor, step_size: float) -> Tensor:
        """x^{k+1} from x^k, given the hypergradient h at x^k."""
        ...


@settings
class Plain:
    """x − αh."""

    card: ClassVar[Card] = Card("Huang, Zhang, Ji 2023 (FedMBO)", PAPER, Cost("0", "0", "0"))

    def step(self, clients: Clients, x: Tensor, y: Tensor, h: Tensor, step_size: float) -> Tensor:
        return x - step_size * h


def corrected_x_steps(problem: Problem, batches: Samples, x: Tensor, y: Tensor, h: Tensor, step_size: float) -> Tensor:
    """Steps along ∇_x f_i(x_i, y; ξ) − ∇_x f_i(x, y; ξ) + h, the same ξ in both terms."""
    x_i = x
    for batch in unstack(batches):
        correction = grad_x_upper(problem, batch, x_i, y) - grad_x_upper(problem, batch, x, y)
        x_i = x_i - step_size * (correction + h)
    return x_i


@settings
class FedOut:
    """The mean over a cohort of x_i after τ local steps, which recompute only the direct gradient ∇_x f_i.

    Each step has size α, so together they go about τ times as far as one. With τ = 1 it is the plain step, at the
    price of a communication.
    """

    card: ClassVar[Card] = Card("Tarzanagh et al. 2022 (FedNest)", CODE, Cost("1", "2*p + q", "p"))

    local_steps: Count  # τ
    batch_size: Count

    def step(self, clients: Clients, x: Tensor, y: Tensor, h: Tensor, step_size: float) -> Tensor:
        draw = Draw("validation", self.batch_size, count=self.local_steps)
        return clients.mean(partial(corrected_x_steps, step_size=step_size), clients.sample(), x, y, h, draw=draw)


@settings
class Frozen:
    """x stays as it is: an ablation, which shows what learning x does.

    The hypergradient is computed all the same, so that a round costs what it costs with a plain step.
    """

    card: ClassVar[Card] = Card("ablation", STANDARD, Cost("0", "0", "0"), heterogeneity="no")

    def step(self, clients: Clients, x: Tensor, y: Tensor, h: Tensor, step_size: float) -> Tensor:
        return x


OUTER = Registry("outer step", "outer", Outer, {"plain": Plain, "fedout": FedOut, "frozen": Frozen})

OuterStep = Annotated[Outer, Component(OUTER)]
