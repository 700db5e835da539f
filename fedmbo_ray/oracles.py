"""What a client can compute: gradients of its two losses, and products with second derivatives of the lower one.

Each oracle is a `Gradient`: a kernel for one client, to be called from other kernels, that also knows how
a whole block of clients computes it in one backward pass. Slots don't interact, so the gradient of the sum
of their values in stacked points is the stack of their gradients, and the gradient in a shared point is
the sum of theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

Tensors = Tensor | tuple[Tensor, ...]
X, Y, V = 0, 1, 2  # positions of x, y and v among a kernel's arguments


@dataclass(frozen=True)
class Gradient:
    """The gradient of a client's `value(problem, batch, x, y, ...)` in its arguments at positions `wrt`.

    `total(problem, batches, x, ys, ...)` is the sum of the values over a block, with y stacked.
    """

    value: Callable[..., Tensor]
    total: Callable[..., Tensor]
    wrt: int | tuple[int, ...]

    def __call__(self, problem: Any, batch: Any, *args: Tensor) -> Any:
        """For one client, inside another kernel."""
        return grad(lambda *args: self.value(problem, batch, *args), argnums=self.wrt)(*args)

    def each(self, problem: Any, batches: Any, shared: tuple[Tensor, ...], each: tuple[Tensor, ...]) -> Tensors:
        """For every slot of a block, stacked."""
        if self.wrt != Y or len(shared) < 2:
            axes = (0, *(None for _ in shared), *(0 for _ in each))
            return vmap(lambda batch, *args: self(problem, batch, *args), axes)(batches, *shared, *each)
        x, y, *rest = shared
        ys = y.expand(slots(batches), -1).detach().requires_grad_()
        return torch.autograd.grad(self.total(problem, batches, x, ys, *rest, *each), ys)[0]

    def sum(self, problem: Any, batches: Any, shared: tuple[Tensor, ...], each: tuple[Tensor, ...]) -> Tensors:
        """The sum over the slots of a block, of gradients in shared arguments."""
        wrt = self.wrt if isinstance(self.wrt, tuple) else (self.wrt,)
        points = [shared[i].detach().requires_grad_() for i in wrt]
        x, y, *rest = (points[wrt.index(i)] if i in wrt else arg for i, arg in enumerate(shared))
        count = slots(batches)
        if each:
            total = self.total(problem, batches, x, y.expand(count, -1), *rest, *each)
        else:  # one point for all: the slots' samples make one batch
            total = count * self.total(problem, one_slot(batches), x, y.expand(1, -1), *rest)
        gradients = torch.autograd.grad(total, points, allow_unused=True, materialize_grads=True)
        return gradients if isinstance(self.wrt, tuple) else gradients[0]


def losses(loss: Callable[..., Tensor], problem: Any, x: Tensor, ys: Tensor, batches: Any) -> Tensor:
    """A problem's upper or lower loss in every slot, at stacked y."""
    if getattr(problem, "stacks", False):
        return loss(x, ys, batches)
    return vmap(loss, (None, 0, 0))(x, ys, batches)


def lower(problem: Any, batch: Any, x: Tensor, y: Tensor) -> Tensor:
    """g_i(x, y; ζ)."""
    return problem.lower(x, y, batch)


def lowers(problem: Any, batches: Any, x: Tensor, ys: Tensor) -> Tensor:
    return losses(problem.lower, problem, x, ys, batches).sum()


def upper(problem: Any, batch: Any, x: Tensor, y: Tensor) -> Tensor:
    """f_i(x, y; ξ)."""
    return problem.upper(x, y, batch)


def uppers(problem: Any, batches: Any, x: Tensor, ys: Tensor) -> Tensor:
    return losses(problem.upper, problem, x, ys, batches).sum()


def slope(problem: Any, batch: Any, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """⟨∇_y g_i(x, y; ζ), v⟩, whose gradients in y and x are the products with ∇²_yy g and ∇²_xy g."""
    return grad_y_lower(problem, batch, x, y) @ v


def slopes(problem: Any, batches: Any, x: Tensor, ys: Tensor, vs: Tensor) -> Tensor:
    ys = ys if ys.requires_grad else ys.detach().requires_grad_()
    (gradients,) = torch.autograd.grad(lowers(problem, batches, x, ys), ys, create_graph=True)
    return (gradients * vs).sum()


def lagrangian(problem: Any, batch: Any, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """f_i(x, y; ξ) − ⟨∇_y g_i(x, y; ζ), v⟩ for a batch (ξ, ζ).

    In the mean over clients it is stationary in v at y = y*(x), and in y at v = [∇²_yy g]⁻¹∇_y f; there, its
    gradient in x is the hypergradient.
    """
    validation, train = batch
    return problem.upper(x, y, validation) - slope(problem, train, x, y, v)


def lagrangians(problem: Any, batches: Any, x: Tensor, ys: Tensor, vs: Tensor) -> Tensor:
    validation, train = batches
    return uppers(problem, validation, x, ys) - slopes(problem, train, x, ys, vs)


grad_y_lower = Gradient(lower, lowers, Y)  # ∇_y g
grads_lower = Gradient(lower, lowers, (X, Y))  # ∇_x g, ∇_y g
grad_x_upper = Gradient(upper, uppers, X)  # ∇_x f
grad_y_upper = Gradient(upper, uppers, Y)  # ∇_y f
grads_upper = Gradient(upper, uppers, (X, Y))  # ∇_x f, ∇_y f
hessian_yy = Gradient(slope, slopes, Y)  # ∇²_yy g · v
hessian_xy = Gradient(slope, slopes, X)  # ∇²_xy g · v
grad_x_through = Gradient(lagrangian, lagrangians, X)  # ∇_x f − ∇²_xy g · v
grad_y_through = Gradient(lagrangian, lagrangians, Y)  # ∇_y f − ∇²_yy g · v
grads_lagrangian = Gradient(lagrangian, lagrangians, (X, Y, V))  # both, and −∇_y g


def slots(batches: Any) -> int:
    """How many slots a batch, or a tuple of batches, is for."""
    return len(batches) if isinstance(batches, Tensor) else slots(batches[0])


def one_slot(batches: Any) -> Any:
    """All slots' samples as the batch of one slot; of a tuple of batches, part by part."""
    if not hasattr(batches, "merged"):
        return tuple(one_slot(part) for part in batches)
    return type(batches)(*(field.unsqueeze(0) for field in batches.merged()))
