"""Derivatives by formula, for problems whose losses are a head on top of what x makes of a batch.

See `problems.base.Layered`. Autograd is left with one thing: to pull a gradient in what x has made back to x.
"""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedmbo_ray.core.compat import pulled_back
from fedmbo_ray.data.batches import Samples
from fedmbo_ray.problems.base import HeadAt, Layered, capabilities


class Term(NamedTuple):
    """weight·head.loss(y, seen) or, with v, weight·⟨∇_y head.loss(y, seen), v⟩: values are sums of such terms."""

    weight: float
    at: HeadAt  # head.at(y, seen)
    v: Tensor | None = None

    def in_y(self) -> Tensor:
        return self._weighted(self.at.gradient() if self.v is None else self.at.product(self.v))

    def in_v(self) -> Tensor:
        return self._weighted(self.at.gradient())

    def in_seen(self) -> list[tuple[Tensor, Tensor]]:
        """What depends on x, and the gradient in it."""
        pulled = self.at.pulled() if self.v is None else self.at.pulled_slope(self.v)
        return [(part, self._weighted(gradient)) for part, gradient in pulled]

    def _weighted(self, tensor: Tensor) -> Tensor:
        return tensor if self.weight == 1 else self.weight * tensor


def gradient_in_x(terms: list[Term], x: Tensor) -> Tensor:
    """Summed over the slots of a stack; terms must have been made at an x that requires grad."""
    pairs = [pair for term in terms for pair in term.in_seen()]
    if not pairs:
        return torch.zeros_like(x)
    parts, gradients = zip(*pairs, strict=True)
    return pulled_back(parts, gradients, x)


def gradient_in_y(terms: list[Term]) -> Tensor:
    """One row per slot of a stack."""
    return reduce(add, [term.in_y() for term in terms])


def gradient_in_v(terms: list[Term]) -> Tensor:
    """One row per slot of a stack."""
    return reduce(add, [term.in_v() for term in terms if term.v is not None])


View = Callable[[Tensor, Samples], Samples]  # what x makes of a batch


Wholes = dict[int, tuple[Samples, slice]]  # for the id of a part of a batch: the whole batch, and where the part is


class FeatureCache:
    """A problem with layers, used for one block: x is not applied again to a batch to which it was just applied.

    Kernels use the same batch twice at the same x: for two points y, as SVRG does, or in every step on all data.
    If a batch is a part of a larger one (`wholes`), x is applied to the whole: one large product is faster than
    several small ones.
    """

    def __init__(self, problem: Layered, wholes: Wholes | None = None) -> None:
        self.problem, self.capabilities, self.wholes = problem, capabilities(problem), wholes or {}
        self.most = max(1, len({id(whole) for whole, _ in self.wholes.values()}))
        self.looks: list[tuple[View, Tensor, Samples, Samples]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)

    def upper_sees(self, x: Tensor, batch: Samples) -> Samples:
        return self._part(self.problem.upper_sees, x, batch)

    def lower_sees(self, x: Tensor, batch: Samples) -> Samples:
        return self._part(self.problem.lower_sees, x, batch)

    def _part(self, look: View, x: Tensor, batch: Samples) -> Samples:
        if id(batch) not in self.wholes:
            return self._seen(look, x, batch)
        whole, where = self.wholes[id(batch)]
        seen: Any = self._seen(look, x, whole)  # mypy does not know that samples are a NamedTuple
        return seen._make(field[where] for field in seen)

    def _seen(self, look: View, x: Tensor, batch: Samples) -> Samples:
        for known in self.looks:
            if known[0] == look and known[1] is x and known[2] is batch:
                return known[3]
        seen = look(x, batch)
        self.looks = [*self.looks, (look, x, batch, seen)][-self.most :]
        return seen
