"""What a bilevel problem is: min over x of Φ(x) = mean_i f_i(x, y*(x)), y*(x) = argmin_y mean_i g_i(x, y)."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor

from fedmbo_ray.data import Batch, ClientData, Federated


class Head(Protocol):
    """A loss of y on a batch that x has been at; for an example see `SoftmaxHead`."""

    def loss(self, y: Tensor, batch: Any) -> Tensor: ...

    def at(self, y: Tensor, batch: Any) -> "HeadAt":
        """Its derivatives there."""
        ...


class HeadAt(Protocol):
    """A head's derivatives at one y on one batch."""

    def gradient(self) -> Tensor:
        """∇_y."""
        ...

    def product(self, v: Tensor) -> Tensor:
        """∇²_yy·v."""
        ...

    def pulled(self) -> list[tuple[Tensor, Tensor]]:
        """Those tensors of the batch that require grad, each with the gradient of the loss in it."""
        ...

    def pulled_slope(self, v: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The same for ⟨∇_y, v⟩."""
        ...


class Problem(Protocol):
    """One client's losses. x and y are flat vectors; only the problem knows the shapes behind them.

    `upper` and `lower` are means over the batch's samples, free of randomness and of branching on
    values, so that they can be vmapped over clients and differentiated twice. A problem whose losses also
    take stacks (y of shape (n, q) and batches with a first axis of n slots, giving n losses) may say so
    with ``stacks = True``: that spares the vmap, which is most of the time of a small model. If x may be a stack as
    well, a row does not depend on the others even in its last bit, and merging batches is taking the mean of their
    fields, ``stacks_all = True`` lets several runs compute their clients in one call.
    """

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The starting point: x⁰ of shape (p,) and y⁰ of shape (q,)."""
        ...

    def upper(self, x: Tensor, y: Tensor, batch: Any) -> Tensor:
        """f_i(x, y; ξ), a scalar; `batch` is drawn from the validation split."""
        ...

    def lower(self, x: Tensor, y: Tensor, batch: Any) -> Tensor:
        """g_i(x, y; ζ), a scalar, strongly convex in y; `batch` is drawn from the training split."""
        ...

    def metrics(self, x: Tensor, y: Tensor, test: Batch | None) -> dict[str, float]:
        """What to report of a point: figures on held-out data, or exact ones where there is a closed form."""
        ...


class Layered(Problem, Protocol):
    """A problem of two layers: x makes something of a batch, and y meets x in nothing else.

    Its losses are ``head.loss(y, sees(x, batch))`` with heads that know their derivatives in y. Both take stacks.
    Oracles then differentiate in y by formula, and look at a batch once for several steps at the same x.
    """

    upper_head: Head
    lower_head: Head

    def upper_sees(self, x: Tensor, batch: Any) -> Any:
        """The batch as the upper head takes it: with features in place of inputs, say."""
        ...

    def lower_sees(self, x: Tensor, batch: Any) -> Any: ...


class Task(NamedTuple):
    """A problem with its data; `test` is None where `Problem.metrics` is exact without any."""

    problem: Problem
    data: ClientData
    test: Batch | None


class ProblemSettings(Protocol):
    """What a config says about a problem; ``needs_data = False`` if it makes its own.

    `data` is the partitioned data set, None for a problem that makes its own.
    """

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task: ...
