"""The point (x, y, v) of single-loop methods, v standing for [∇²_yy g]⁻¹∇_y f, and how it moves."""

from collections.abc import Iterable

from torch import Tensor

from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import Pair, Vectors, grads_lagrangian

NAMES = ("x", "y", "v")


def ascent(d_x: Tensor, d_y: Tensor, d_v: Tensor) -> Vectors:
    """From the gradients of f − ⟨∇_y g, v⟩: the directions in which x, y and v should not go."""
    return d_x, -d_v, -d_y


def directions(problem: Problem, batch: Pair, *point: Tensor) -> Vectors:
    """∇_x f_i − ∇²_xy g_i v,  ∇_y g_i  and  ∇²_yy g_i v − ∇_y f_i, for one client and a batch (ξ, ζ)."""
    return ascent(*grads_lagrangian(problem, batch, *point))


def moved(point: Iterable[Tensor], along: Iterable[Tensor], steps: Iterable[float]) -> Vectors:
    return tuple(at - step * d for at, step, d in zip(point, steps, along, strict=True))


def projected(v: Tensor, radius: float | None) -> Tensor:
    """v · min(1, r/‖v‖); v itself without a radius."""
    return v if radius is None else v * (radius / v.norm()).clamp(max=1.0)
