"""The Neumann scale ℓ: given, or measured by the clients."""

from functools import partial
from typing import Annotated, Protocol

import torch
from torch import Tensor

from fedmbo_ray.core.components import Component
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.core.settings import Count, Positive, settings
from fedmbo_ray.data.batches import Draw, Samples
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import hessian_yy


class Smoothness(Protocol):
    """A rule for ℓ, which scales the Neumann series."""

    def __call__(self, clients: Clients, x: Tensor, y: Tensor, last: Tensor, batch_size: int | None) -> Tensor:
        """ℓ for this round, a scalar tensor.

        Args:
            clients: the federation during this round.
            x: the upper variable.
            y: the lower variable.
            last: ℓ of the round before; nan at first.
            batch_size: samples behind one of the products with ∇²_yy g that ℓ is for; None: all of a client.
        """
        ...


def unmeasured(y: Tensor) -> Tensor:
    """ℓ before the first round."""
    return torch.tensor(torch.nan, dtype=y.dtype)


@settings
class Given:
    """A given number, known or tuned."""

    value: Positive

    def __call__(self, clients: Clients, x: Tensor, y: Tensor, last: Tensor, batch_size: int | None) -> Tensor:
        return torch.full_like(last, self.value)


def largest_curvature(problem: Problem, batch: Samples, x: Tensor, y: Tensor, v: Tensor, iterations: int) -> Tensor:
    """λ_max(∇²_yy g_i) on a client's batch, by power iteration."""
    for _ in range(iterations):
        v = hessian_yy(problem, batch, x, y, v / v.norm())
    return v.norm()


@settings
class PowerIteration:
    """margin × the largest curvature that clients have measured so far, each on its own batch.

    The Neumann step needs ∇²_yy g_i(·; ζ) ⪯ ℓI of every client's batch, not of their mean, and wherever a run gets to:
    so ℓ never falls, and batches have the size of the estimator's, since smaller ones have larger curvatures. Curvature
    changes fastest at the beginning: it is measured in rounds 0, 1, 2, 4, 8, … as well as every so many. That costs
    one communication each time, and one float per client upstream.
    """

    iterations: Count = 10
    every: Count = 50
    margin: Positive = 1.5
    batch_size: Count | None = None  # by default that of the estimator

    def __call__(self, clients: Clients, x: Tensor, y: Tensor, last: Tensor, batch_size: int | None) -> Tensor:
        if not last.isnan() and not self.is_due(clients.round):
            return last
        start = torch.from_numpy(clients.rng.standard_normal(y.shape)).to(y)
        kernel = partial(largest_curvature, iterations=self.iterations)
        draw = Draw("train", self.batch_size or batch_size)
        found = clients.map(kernel, clients.sample(), x, y, start, draw=draw)
        return torch.fmax(last, self.margin * found.max())

    def is_due(self, round: int) -> bool:
        return round % self.every == 0 or round & (round - 1) == 0


SMOOTHNESS = Registry("smoothness", "smoothness", Smoothness, {"given": Given, "auto": PowerIteration})

NeumannScale = Annotated[Smoothness, Component(SMOOTHNESS, number="given")]
