"""Exact figures of bilevel progress, on the data of all clients: Φ(x), and how a step compares with −∇Φ(x)."""

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.oracles import grad_x_upper, grad_y_lower, grad_y_upper, hessian_xy, hessian_yy
from fedmbo_ray.runs.whole_data import PersonalLower, SharedLower, WholeData

NEWTON_STEPS, CG_STEPS = 30, 500  # at most


class ExactPoint(NamedTuple):
    """The bilevel problem solved at one x."""

    phi: float  # Φ(x) = f(x, y*(x))
    gradient: Tensor  # ∇Φ(x)
    implicit_share: float  # ‖∇²_xy g v‖ over the sum of both parts' norms: 0 if the hypergradient is direct
    y: Tensor  # y*(x); if clients have their own, one row for each


class ExactFigures:
    """Solves the lower problem and the linear system of the hypergradient by conjugate gradients on all data.

    If every client has a lower problem of its own, all are solved as one: of the vector of all y_i, with a Hessian that
    has a block for each client.
    """

    def __init__(self, task: Task) -> None:
        self.task = task

    @cached_property
    def shared(self) -> WholeData:
        return SharedLower(self.task)

    @cached_property
    def personal(self) -> WholeData:
        return PersonalLower(self.task)

    def at(self, x: Tensor, y: Tensor) -> ExactPoint:
        """The solution at x; the search for y*(x) starts at y, which has one row for each client or is one for all."""
        clients, x = self.personal if y.dim() == 2 else self.shared, x.detach()
        found = solved(clients, x, y.detach().flatten())
        b = clients.in_y("validation", grad_y_upper, x, found)
        v = conjugate_gradients(partial(clients.in_y, "train", hessian_yy, x, found), b, tolerance(b))
        direct = clients.in_x("validation", grad_x_upper, x, found)
        implicit = clients.in_x("train", hessian_xy, x, found, v)
        norms = float(direct.norm()), float(implicit.norm())
        share = norms[1] / sum(norms) if sum(norms) else 0.0
        return ExactPoint(clients.loss("validation", x, found), direct - implicit, share, found.view_as(y))


def solved(clients: WholeData, x: Tensor, y: Tensor) -> Tensor:
    """y*(x) by Newton's method, whose steps are halved until they descend."""
    value = clients.loss("train", x, y)
    for _ in range(NEWTON_STEPS):
        g = clients.in_y("train", grad_y_lower, x, y)
        if float(g.norm()) <= tolerance(g) * (1 + float(y.norm())):
            break
        step = conjugate_gradients(partial(clients.in_y, "train", hessian_yy, x, y), g, 0.1)
        length = 1.0
        while not (new := clients.loss("train", x, y - length * step)) < value and length > 1e-4:
            length /= 2
        if not new < value:
            break
        y, value = y - length * step, new
    return y


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


def tolerance(like: Tensor) -> float:
    """Of residuals, relative."""
    return 1e-4 if like.dtype == torch.float32 else 1e-9
