"""The Neumann scale ℓ: given, or measured by the clients."""

from functools import partial
from typing import Annotated, Any, Protocol

import torch
from torch import Tensor

from fedmbo_ray.data import Draw
from fedmbo_ray.federation import Clients
from fedmbo_ray.oracles import hessian_yy
from fedmbo_ray.registry import Component, Count, Positive, Registry, settings


class Smoothness(Protocol):
    def __call__(self, clients: Clients, x: Tensor, y: Tensor, last: Tensor) -> Tensor:
        """ℓ for this round, a scalar tensor; `last` is the one of the round before (nan at first)."""
        ...


def unmeasured(y: Tensor) -> Tensor:
    """ℓ before the first round."""
    return torch.tensor(torch.nan, dtype=y.dtype)


@settings
class Given:
    """A number that is known, or tuned."""

    value: Positive

    def __call__(self, clients: Clients, x: Tensor, y: Tensor, last: Tensor) -> Tensor:
        return torch.full_like(last, self.value)


def largest_curvature(problem: Any, batch: Any, x: Tensor, y: Tensor, v: Tensor, iterations: int) -> Tensor:
    """λ_max(∇²_yy g_i) on a client's batch, by power iteration."""
    for _ in range(iterations):
        v = hessian_yy(problem, batch, x, y, v / v.norm())
    return v.norm()


@settings
class PowerIteration:
    """margin × the largest curvature that clients have found so far, each of a cohort on a batch of its own.

    The Neumann step needs ∇²_yy g_i(·; ζ) ⪯ ℓI of every client's batch, not of their mean, and wherever a run gets to:
    so ℓ never falls. Curvature changes fastest at the beginning: it is measured in rounds 0, 1, 2, 4, 8, … as well as
    every so many. That costs one communication each time, and one float per client upstream.
    """

    iterations: Count = 10
    every: Count = 50
    margin: Positive = 1.5
    batch_size: Count = 64

    def __call__(self, clients: Clients, x: Tensor, y: Tensor, last: Tensor) -> Tensor:
        if not last.isnan() and not self.is_due(clients.round):
            return last
        start = torch.from_numpy(clients.rng.standard_normal(y.shape)).to(y)
        kernel = partial(largest_curvature, iterations=self.iterations)
        found = clients.map(kernel, clients.sample(), x, y, start, draw=Draw("train", self.batch_size))
        return torch.fmax(last, self.margin * found.max())

    def is_due(self, round: int) -> bool:
        return round % self.every == 0 or round & (round - 1) == 0


SMOOTHNESS = Registry("smoothness", "smoothness", ("__call__",), {"given": Given, "auto": PowerIteration})

NeumannScale = Annotated[Smoothness, Component(SMOOTHNESS, number="given")]
