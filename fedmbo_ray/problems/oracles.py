"""What a client can compute: gradients of its two losses, and products with second derivatives of the lower one.

Each oracle is a `Gradient`: a kernel for one client, to be called from other kernels, that also knows how
a whole block of clients computes it at once. Slots don't interact, so the gradient of the sum of their values
in stacked points is the stack of their gradients, and the gradient in a shared point is the sum of theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedmbo_ray.data.batches import Drawn, DrawnT, Samples
from fedmbo_ray.problems.base import Layered, Problem, capabilities, is_layered
from fedmbo_ray.problems.head_derivatives import Term, gradient_in_v, gradient_in_x, gradient_in_y

Vectors = tuple[Tensor, ...]
Tensors = Tensor | Vectors
Kernel = Callable[..., Tensors]  # (problem, batch, *tensors) -> what the client uploads
Loss = Callable[[Tensor, Tensor, Samples], Tensor]  # of x, y and a batch
Pair = tuple[Samples, Samples]  # a validation and a training batch
Out = TypeVar("Out", bound=Tensors)  # of one position, or of several
X, Y, V = 0, 1, 2  # positions of x, y and v among a kernel's arguments


@dataclass(frozen=True)
class Gradient(Generic[Out]):
    """The gradient of a client's `value(problem, batch, x, y, ...)` in its arguments at positions `wrt`.

    `total(problem, batches, x, ys, ...)` is the sum of the values over a block, with y stacked; `terms`, of the same
    arguments, are what the values are made of, for problems with layers: they are differentiated by formula.
    One position gives a tensor, a tuple of positions a tuple of tensors.
    """

    value: Callable[..., Tensor]
    total: Callable[..., Tensor]
    terms: Callable[..., list[Term]]
    wrt: int | tuple[int, ...]

    def __call__(self, problem: Problem, batch: Drawn, *args: Tensor) -> Out:
        """For one client, inside another kernel."""
        if self.wrt == Y and is_layered(problem):
            return cast("Out", gradient_in_y(self.terms(problem, batch, *args)))
        return grad(lambda *args: self.value(problem, batch, *args), argnums=self.wrt)(*args)

    def each(self, problem: Problem, batches: Drawn, shared: tuple[Tensor, ...], each: tuple[Tensor, ...]) -> Tensors:
        """For every slot of a block, stacked."""
        args = (*shared, *each)
        if self.wrt == Y and shared and is_layered(problem):
            return gradient_in_y(self.terms(problem, batches, *args))
        if self.wrt != Y or len(shared) < 2:
            axes = (0, *(None for _ in shared), *(0 for _ in each))
            return vmap(lambda batch, *args: self(problem, batch, *args), axes)(batches, *args)
        x, y, *rest = args
        ys = y.expand(slots(batches), -1).detach().requires_grad_()
        return torch.autograd.grad(self.total(problem, batches, x, ys, *rest), ys)[0]

    def rows(self, problem: Problem, batches: Drawn, *args: Tensor) -> tuple[Tensor, ...]:
        """For every slot at arguments of its own, where the problem takes stacks."""
        wrt = self.wrt if isinstance(self.wrt, tuple) else (self.wrt,)
        points = [args[i].detach().requires_grad_() for i in wrt]
        total = self.total(problem, batches, *(points[wrt.index(i)] if i in wrt else arg for i, arg in enumerate(args)))
        return torch.autograd.grad(total, points, allow_unused=True, materialize_grads=True)

    def sum(self, problem: Problem, batches: Drawn, shared: tuple[Tensor, ...], each: tuple[Tensor, ...]) -> Tensors:
        """The sum over the slots of a block, of gradients in shared arguments."""
        if is_layered(problem):
            return self._by_formula(problem, batches, *shared, *each)
        if each:
            return self._by_autograd(problem, batches, *shared, *each)
        gradients = self._by_autograd(problem, one_slot(batches), *shared)  # one point: all samples make one batch
        count = slots(batches)
        return tuple(count * part for part in gradients) if isinstance(gradients, tuple) else count * gradients

    def _by_formula(self, problem: Layered, batches: Drawn, x: Tensor, y: Tensor, *rest: Tensor) -> Tensors:
        if self.wrt == Y:
            return gradient_in_y(self.terms(problem, batches, x, y, *rest)).sum(0)
        x = x.detach().requires_grad_()
        terms = self.terms(problem, batches, x, y, *rest)
        with torch.no_grad():
            in_x = gradient_in_x(terms, x)
            if self.wrt == X:
                return in_x
            in_y = gradient_in_y(terms).sum(0)
            return (in_x, in_y) if self.wrt == (X, Y) else (in_x, in_y, gradient_in_v(terms).sum(0))

    def _by_autograd(self, problem: Problem, batches: Drawn, *args: Tensor) -> Tensors:
        wrt = self.wrt if isinstance(self.wrt, tuple) else (self.wrt,)
        points = [args[i].detach().requires_grad_() for i in wrt]
        x, y, *rest = (points[wrt.index(i)] if i in wrt else arg for i, arg in enumerate(args))
        total = self.total(problem, batches, x, y.expand(slots(batches), -1), *rest)
        if total.requires_grad:
            gradients = torch.autograd.grad(total, points, allow_unused=True, materialize_grads=True)
        else:  # none of the points enters
            gradients = tuple(map(torch.zeros_like, points))
        return gradients if isinstance(self.wrt, tuple) else gradients[0]


def losses(loss: Loss, problem: Problem, x: Tensor, ys: Tensor, batches: Samples) -> Tensor:
    """A problem's upper or lower loss in every slot, at stacked y."""
    if capabilities(problem).stacks:
        return loss(x, ys, batches)
    return vmap(loss, (None, 0, 0))(x, ys, batches)


def lower(problem: Problem, batch: Samples, x: Tensor, y: Tensor) -> Tensor:
    """g_i(x, y; ζ)."""
    return problem.lower(x, y, batch)


def lowers(problem: Problem, batches: Samples, x: Tensor, ys: Tensor) -> Tensor:
    return losses(problem.lower, problem, x, ys, batches).sum()


def lower_terms(problem: Layered, batches: Samples, x: Tensor, y: Tensor) -> list[Term]:
    return [Term(1, problem.lower_head.at(y, problem.lower_sees(x, batches)))]


def upper(problem: Problem, batch: Samples, x: Tensor, y: Tensor) -> Tensor:
    """f_i(x, y; ξ)."""
    return problem.upper(x, y, batch)


def uppers(problem: Problem, batches: Samples, x: Tensor, ys: Tensor) -> Tensor:
    return losses(problem.upper, problem, x, ys, batches).sum()


def upper_terms(problem: Layered, batches: Samples, x: Tensor, y: Tensor) -> list[Term]:
    return [Term(1, problem.upper_head.at(y, problem.upper_sees(x, batches)))]


def slope(problem: Problem, batch: Samples, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """⟨∇_y g_i(x, y; ζ), v⟩, whose gradients in y and x are the products with ∇²_yy g and ∇²_xy g."""
    return grad_y_lower(problem, batch, x, y) @ v


def slopes(problem: Problem, batches: Samples, x: Tensor, ys: Tensor, vs: Tensor) -> Tensor:
    ys = ys if ys.requires_grad else ys.detach().requires_grad_()
    (gradients,) = torch.autograd.grad(lowers(problem, batches, x, ys), ys, create_graph=True)
    if not gradients.requires_grad:
        raise RuntimeError("the gradient of the lower loss can't be differentiated again")
    return (gradients * vs).sum()


def slope_terms(problem: Layered, batches: Samples, x: Tensor, y: Tensor, v: Tensor) -> list[Term]:
    return [Term(1, problem.lower_head.at(y, problem.lower_sees(x, batches)), v)]


def lagrangian(problem: Problem, batch: Pair, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """f_i(x, y; ξ) − ⟨∇_y g_i(x, y; ζ), v⟩ for a batch (ξ, ζ).

    In the mean over clients it is stationary in v at y = y*(x), and in y at v = [∇²_yy g]⁻¹∇_y f; there, its
    gradient in x is the hypergradient.
    """
    validation, train = batch
    return problem.upper(x, y, validation) - slope(problem, train, x, y, v)


def lagrangians(problem: Problem, batches: Pair, x: Tensor, ys: Tensor, vs: Tensor) -> Tensor:
    validation, train = batches
    return uppers(problem, validation, x, ys) - slopes(problem, train, x, ys, vs)


def lagrangian_terms(problem: Layered, batches: Pair, x: Tensor, y: Tensor, v: Tensor) -> list[Term]:
    validation, train = batches
    above = Term(1, problem.upper_head.at(y, problem.upper_sees(x, validation)))
    return [above, Term(-1, problem.lower_head.at(y, problem.lower_sees(x, train)), v)]


def pooled(problem: Problem, batch: Pair, x: Tensor, y: Tensor, weight: float) -> Tensor:
    """w·f_i(x, y; ξ) + (1 − w)·g_i(x, y; ζ) for a batch (ξ, ζ): the two losses as one."""
    validation, train = batch
    return weight * problem.upper(x, y, validation) + (1 - weight) * problem.lower(x, y, train)


def pooleds(problem: Problem, batches: Pair, x: Tensor, ys: Tensor, weight: float) -> Tensor:
    validation, train = batches
    return weight * uppers(problem, validation, x, ys) + (1 - weight) * lowers(problem, train, x, ys)


def pooled_terms(problem: Layered, batches: Pair, x: Tensor, y: Tensor, weight: float) -> list[Term]:
    validation, train = batches
    above = Term(weight, problem.upper_head.at(y, problem.upper_sees(x, validation)))
    return [above, Term(1 - weight, problem.lower_head.at(y, problem.lower_sees(x, train)))]


grad_y_lower: Gradient[Tensor] = Gradient(lower, lowers, lower_terms, Y)  # ∇_y g
grads_lower: Gradient[Vectors] = Gradient(lower, lowers, lower_terms, (X, Y))  # ∇_x g, ∇_y g
grad_x_upper: Gradient[Tensor] = Gradient(upper, uppers, upper_terms, X)  # ∇_x f
grad_y_upper: Gradient[Tensor] = Gradient(upper, uppers, upper_terms, Y)  # ∇_y f
grads_upper: Gradient[Vectors] = Gradient(upper, uppers, upper_terms, (X, Y))  # ∇_x f, ∇_y f
hessian_yy: Gradient[Tensor] = Gradient(slope, slopes, slope_terms, Y)  # ∇²_yy g · v
hessian_xy: Gradient[Tensor] = Gradient(slope, slopes, slope_terms, X)  # ∇²_xy g · v
grad_x_through: Gradient[Tensor] = Gradient(lagrangian, lagrangians, lagrangian_terms, X)  # ∇_x f − ∇²_xy g · v
grad_y_through: Gradient[Tensor] = Gradient(lagrangian, lagrangians, lagrangian_terms, Y)  # ∇_y f − ∇²_yy g · v
grads_lagrangian: Gradient[Vectors] = Gradient(lagrangian, lagrangians, lagrangian_terms, (X, Y, V))  # both, and −∇_y g


@cache
def grads_pooled(weight: float) -> Gradient[Vectors]:
    """∇_x and ∇_y of w·f + (1 − w)·g; the same object for the same w, so that runs side by side share their calls."""
    value, total = partial(pooled, weight=weight), partial(pooleds, weight=weight)
    return Gradient(value, total, partial(pooled_terms, weight=weight), (X, Y))


def slots(batches: Drawn) -> int:
    """How many slots a batch, or a tuple of batches, is for."""
    return len(batches) if isinstance(batches, Tensor) else slots(next(iter(batches)))


def one_slot(batches: DrawnT) -> DrawnT:
    """All slots' samples as the batch of one slot; of a tuple of batches, part by part."""
    whole: Any = batches  # what comes out has the type of what goes in, which mypy can't follow
    if type(batches) is tuple:
        return cast("DrawnT", tuple(map(one_slot, whole)))
    return whole._make(field.unsqueeze(0) for field in whole.merged())
