"""What a client can compute: gradients of its two losses, and products with second derivatives of the lower one.

Each is a `Gradient`, a kernel that knows the scalar behind it. That lets a block of clients do less work
than client after client: gradients at one shared point are added up by differentiating the sum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

Tensors = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True)
class Gradient:
    """The gradient of `value(problem, batch, *args)` in the arguments at positions `wrt`."""

    value: Callable[..., Tensor]
    wrt: int | tuple[int, ...]

    def __call__(self, problem: Any, batch: Any, *args: Tensor) -> Tensors:
        """For one client."""
        return grad(lambda *args: self.value(problem, batch, *args), argnums=self.wrt)(*args)

    def each(self, problem: Any, batches: Any, shared: tuple[Tensor, ...], each: tuple[Tensor, ...]) -> Tensors:
        """For every slot of a block, stacked: slots don't interact, so one backward pass serves all."""
        slots = len(leaves(batches)[0])
        chosen = self.wrt if isinstance(self.wrt, tuple) else (self.wrt,)
        own = [arg.expand(slots, *arg.shape) if i in chosen else arg for i, arg in enumerate(shared)]
        args = [*own, *each]
        points = [args[i].detach().requires_grad_() for i in chosen]
        for i, point in zip(chosen, points, strict=True):
            args[i] = point
        axes = [None if i < len(shared) and i not in chosen else 0 for i in range(len(args))]
        values = vmap(lambda batch, *args: self.value(problem, batch, *args), (0, *axes))(batches, *args)
        return self._unwrap(torch.autograd.grad(values.sum(), points, allow_unused=True, materialize_grads=True))

    def sum(self, problem: Any, batches: Any, shared: tuple[Tensor, ...], each: tuple[Tensor, ...]) -> Tensors:
        """The sum over the slots of a block of gradients in shared arguments."""
        chosen = self.wrt if isinstance(self.wrt, tuple) else (self.wrt,)
        args = [arg.detach().requires_grad_() if i in chosen else arg for i, arg in enumerate(shared)]
        if each:
            values = vmap(lambda batch, *each: self.value(problem, batch, *args, *each))(batches, *each)
        else:
            values = self.value(problem, merged(batches), *args) * len(leaves(batches)[0])
        points = [args[i] for i in chosen]
        return self._unwrap(torch.autograd.grad(values.sum(), points, allow_unused=True, materialize_grads=True))

    def _unwrap(self, gradients: tuple[Tensor, ...]) -> Tensors:
        return gradients if isinstance(self.wrt, tuple) else gradients[0]


def lower(problem: Any, batch: Any, x: Tensor, y: Tensor) -> Tensor:
    """g_i(x, y; ζ)."""
    return problem.lower(x, y, batch)


def upper(problem: Any, batch: Any, x: Tensor, y: Tensor) -> Tensor:
    """f_i(x, y; ξ)."""
    return problem.upper(x, y, batch)


def slope(problem: Any, batch: Any, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """⟨∇_y g_i(x, y; ζ), v⟩, whose gradients in y and x are the products with ∇²_yy g and ∇²_xy g."""
    return grad_y_lower(problem, batch, x, y) @ v


def upper_minus_slope(problem: Any, batch: Any, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """f_i(x, y; ξ) − ⟨∇_y g_i(x, y; ζ), v⟩ for a batch (ξ, ζ)."""
    validation, train = batch
    return problem.upper(x, y, validation) - slope(problem, train, x, y, v)


grad_y_lower: Any = Gradient(lower, 1)  # ∇_y g
grad_y_upper: Any = Gradient(upper, 1)  # ∇_y f
grads_upper: Any = Gradient(upper, (0, 1))  # ∇_x f, ∇_y f
hessian_yy: Any = Gradient(slope, 1)  # ∇²_yy g · v
hessian_xy: Any = Gradient(slope, 0)  # ∇²_xy g · v
grad_x_through: Any = Gradient(upper_minus_slope, 0)  # ∇_x f − ∇²_xy g · v


def leaves(batches: Any) -> list[Tensor]:
    """The tensors of a batch, or of a tuple of batches."""
    return [batches] if isinstance(batches, Tensor) else [leaf for part in batches for leaf in leaves(part)]


def merged(batches: Any) -> Any:
    """All slots' samples as one batch; of a tuple of batches, part by part."""
    return batches.merged() if hasattr(batches, "merged") else tuple(merged(part) for part in batches)
