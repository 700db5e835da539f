"""Exact figures of bilevel progress, on the data of all clients: Φ(x), and how a step compares with −∇Φ(x)."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.data.batches import Draw, Split
from fedmbo_ray.problems.base import Problem, Task, is_layered
from fedmbo_ray.problems.head_derivatives import FeatureCache
from fedmbo_ray.problems.oracles import (
    Gradient,
    grad_x_upper,
    grad_y_lower,
    grad_y_upper,
    hessian_xy,
    hessian_yy,
    one_slot,
)

CLIENTS_TOGETHER = 50
NEWTON_STEPS, CG_STEPS = 30, 500  # at most


class ClientGroup(NamedTuple):
    """The merged data of some clients, with their share of all clients."""

    problem: Problem  # one that remembers what x makes of these data
    train: Any
    validation: Any
    share: float


class ExactPoint(NamedTuple):
    """The bilevel problem solved at one x."""

    phi: float  # Φ(x) = f(x, y*(x))
    gradient: Tensor  # ∇Φ(x)
    implicit_share: float  # ‖∇²_xy g v‖ over the sum of both parts' norms: 0 if the hypergradient is direct
    y: Tensor  # y*(x)


class ExactFigures:
    """Solves the lower problem and the linear system of the hypergradient by conjugate gradients on all data."""

    def __init__(self, task: Task) -> None:
        self.parts = [_part(task, ids) for ids in _groups(task.data.num_clients)]

    def at(self, x: Tensor, y: Tensor) -> ExactPoint:
        """The solution at x; the search for y*(x) starts at y."""
        x = x.detach()
        y = self._solve(x, y.detach())
        b = self._mean("validation", grad_y_upper, x, y)
        v = conjugate_gradients(partial(self._mean, "train", hessian_yy, x, y), b, _tolerance(b))
        direct = self._mean("validation", grad_x_upper, x, y)
        implicit = self._mean("train", hessian_xy, x, y, v)
        norms = float(direct.norm()), float(implicit.norm())
        share = norms[1] / sum(norms) if sum(norms) else 0.0
        with torch.no_grad():
            phi = sum(part.share * float(_loss(part.problem.upper, x, y, part.validation)) for part in self.parts)
        return ExactPoint(phi, direct - implicit, share, y)

    def _solve(self, x: Tensor, y: Tensor) -> Tensor:
        """y*(x) by Newton's method, whose steps are halved until they descend."""
        value = self._lower(x, y)
        for _ in range(NEWTON_STEPS):
            g = self._mean("train", grad_y_lower, x, y)
            if float(g.norm()) <= _tolerance(g) * (1 + float(y.norm())):
                break
            step = conjugate_gradients(partial(self._mean, "train", hessian_yy, x, y), g, 0.1)
            length = 1.0
            while not (new := self._lower(x, y - length * step)) < value and length > 1e-4:
                length /= 2
            if not new < value:
                break
            y, value = y - length * step, new
        return y

    def _lower(self, x: Tensor, y: Tensor) -> float:
        with torch.no_grad():
            return sum(part.share * float(_loss(part.problem.lower, x, y, part.train)) for part in self.parts)

    def _mean(self, split: Split, oracle: Gradient[Tensor], x: Tensor, *rest: Tensor) -> Tensor:
        """The mean over all clients of an oracle on all their data."""
        total = None
        for part in self.parts:
            batch = part.train if split == "train" else part.validation
            found = part.share * oracle.sum(part.problem, batch, (x, *rest), ())  # type: ignore[operator]
            total = found if total is None else total + found
        assert total is not None
        return total


def conjugate_gradients(product: Callable[[Tensor], Tensor], b: Tensor, tolerance: float) -> Tensor:
    """v with H v = b, up to a residual of tolerance·‖b‖; it ends early where H has no curvature left."""
    v, r = b * 0, b
    p, limit = r, tolerance * float(b.norm())
    for _ in range(CG_STEPS):
        if float(r.norm()) <= limit:
            break
        Hp = product(p)
        curvature = float(p @ Hp)
        if curvature <= 0:
            return b if not bool(v.any()) else v
        a = float(r @ r) / curvature
        v, old, r = v + a * p, r, r - a * Hp
        p = r + float(r @ r) / float(old @ old) * p
    return v


def cosine(a: Tensor, b: Tensor) -> float:
    """Of the angle between two vectors; nan if one of them is zero."""
    norms = float(a.double().norm()) * float(b.double().norm())
    return float(a.double() @ b.double()) / norms if norms else math.nan


def _part(task: Task, ids: np.ndarray) -> ClientGroup:
    seeds, cpu = draw_seeds(stream(0, "all data"), len(ids)), torch.device("cpu")
    train, validation = (
        one_slot(task.data.draw(ids, seeds, Draw(split, None), cpu)) for split in ("train", "validation")
    )
    problem: Any = FeatureCache(task.problem) if is_layered(task.problem) else task.problem
    return ClientGroup(problem, train, validation, len(ids) / task.data.num_clients)


def _groups(num_clients: int) -> list[np.ndarray]:
    return np.array_split(np.arange(num_clients), math.ceil(num_clients / CLIENTS_TOGETHER))


def _loss(loss: Callable[..., Tensor], x: Tensor, y: Tensor, batch: Any) -> Tensor:
    """Of the batch of one slot."""
    return loss(x, y, batch._make(field[0] for field in batch))


def _tolerance(like: Tensor) -> float:
    return 1e-4 if like.dtype == torch.float32 else 1e-9
