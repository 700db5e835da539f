"""What a bilevel problem is: min over x of Φ(x) = mean_i f_i(x, y*(x)), y*(x) = argmin_y mean_i g_i(x, y)."""

from typing import NamedTuple, Protocol, TypeGuard, TypeVar

import numpy as np
from torch import Tensor, nn

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.data.array_clients import Federated
from fedmbo_ray.data.batches import Batch, ClientData, Samples

B_contra = TypeVar("B_contra", bound=Samples, contravariant=True)  # the samples that a loss takes
S_contra = TypeVar("S_contra", bound=Samples, contravariant=True)  # the samples that a head takes
S = TypeVar("S", bound=Samples)


class Head(Protocol[S_contra]):
    """A loss of y on a batch to which x has been applied; `SoftmaxHead` is an example."""

    def loss(self, y: Tensor, batch: S_contra) -> Tensor: ...

    def at(self, y: Tensor, batch: S_contra) -> "HeadAt":
        """The derivatives at y on this batch."""
        ...


class HeadAt(Protocol):
    """A head's derivatives at one y on one batch."""

    def gradient(self) -> Tensor:
        """∇_y of the loss."""
        ...

    def product(self, v: Tensor) -> Tensor:
        """∇²_yy·v of the loss."""
        ...

    def pulled(self) -> list[tuple[Tensor, Tensor]]:
        """The tensors of the batch that require grad, each with the gradient of the loss with respect to it."""
        ...

    def pulled_slope(self, v: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Like `pulled`, with ⟨∇_y loss, v⟩ instead of the loss."""
        ...


class Capabilities(NamedTuple):
    """What a problem can do besides the four methods of `Problem`; its class declares this as ``capabilities``.

    By default it can do none of this. `stacks` and `layered` save time, and change at most the last bits.
    """

    stacks: bool = False  # losses take y of shape (n, q) and batches of n slots, and return n losses without vmap
    stacks_all: bool = False  # x as well; a row's bits don't depend on other rows; merging is the mean of the fields
    layered: bool = False  # the problem is `Layered`
    model: bool = False  # the problem is `Modelled`
    personal: bool = False  # its figures also take a y for each client, of shape (m, q): methods may keep one for each
    predicts: bool = False  # the problem is `Predicting`: client actors share the work on test data


class Problem(Protocol[B_contra]):
    """One client's losses. x and y are flat vectors; only the problem knows the shapes behind them.

    `upper` and `lower` are means over the batch's samples, without randomness and without branching on values, so that
    they can be vmapped over clients and differentiated twice. A class may declare more in `capabilities`. It has the
    method of `Measured`, or declares `predicts` and has the methods of `Predicting`.

    Example:
        >>> import torch
        >>> class Mean:  # x and y are one number each; y*(x) is x minus the mean of the inputs
        ...     def init(self, rng):
        ...         return torch.zeros(1), torch.zeros(1)
        ...
        ...     def upper(self, x, y, batch):
        ...         return batch.mean((y - batch.inputs.flatten(1).mean(1)) ** 2)
        ...
        ...     def lower(self, x, y, batch):
        ...         return batch.mean((y - x + batch.inputs.flatten(1).mean(1)) ** 2)
        ...
        ...     def metrics(self, x, y, test):
        ...         return {"test_loss": float(self.upper(x, y, test))}
        >>> capabilities(Mean())
        Capabilities(stacks=False, stacks_all=False, layered=False, model=False, personal=False, predicts=False)
    """

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The starting point: x⁰ of shape (p,) and y⁰ of shape (q,)."""
        ...

    def upper(self, x: Tensor, y: Tensor, batch: B_contra) -> Tensor:
        """f_i(x, y; ξ), a scalar; `batch` is drawn from the validation split."""
        ...

    def lower(self, x: Tensor, y: Tensor, batch: B_contra) -> Tensor:
        """g_i(x, y; ζ), a scalar, strongly convex in y; `batch` is drawn from the training split."""
        ...


class Measured(Problem[B_contra], Protocol[B_contra]):
    """A problem whose figures are all computed in the process of the server."""

    def metrics(self, x: Tensor, y: Tensor, test: Batch | None) -> dict[str, float]:
        """Figures to report at (x, y): on held-out data, or exact ones if there is a closed form."""
        ...


class Predicting(Problem[B_contra], Protocol[B_contra]):
    """A problem whose figures come from one prediction per test sample, so that processes can share this work."""

    def predictions(self, x: Tensor, y: Tensor, part: Batch) -> Tensor:
        """A number or a row for each test sample of a part."""
        ...

    def figures(self, x: Tensor, y: Tensor, predictions: Tensor, test: Batch) -> dict[str, float]:
        """Figures to report at (x, y), from the predictions for all test samples. The server computes them."""
        ...


class Layered(Problem[B_contra], Protocol[B_contra, S]):
    """A problem of two layers: x transforms a batch, and the loss of y depends on x only through the result.

    Its losses are ``head.loss(y, sees(x, batch))`` with heads that know their derivatives in y. Both take stacks.
    Oracles then use formulas for the derivatives in y, and transform a batch once for several steps at the same x.
    """

    @property
    def upper_head(self) -> Head[S]: ...

    @property
    def lower_head(self) -> Head[S]: ...

    def upper_sees(self, x: Tensor, batch: B_contra) -> S:
        """The batch as the upper head takes it, for example with features in place of inputs."""
        ...

    def lower_sees(self, x: Tensor, batch: B_contra) -> S: ...


class Modelled(Problem[B_contra], Protocol[B_contra]):
    """A problem whose x and y are the weights of a torch module, which a finished run can return."""

    def model(self, x: Tensor, y: Tensor) -> nn.Module:
        """The module; its inputs are those that clients use."""
        ...


def capabilities(problem: Problem) -> Capabilities:
    """The capabilities that a problem declares."""
    return getattr(problem, "capabilities", Capabilities())


def is_layered(problem: Problem) -> TypeGuard[Layered]:
    return capabilities(problem).layered


def is_predicting(problem: Problem) -> TypeGuard[Predicting]:
    return capabilities(problem).predicts


def is_modelled(problem: Problem) -> TypeGuard[Modelled]:
    return capabilities(problem).model


class Task(NamedTuple):
    """A problem with its data; `test` is None if its figures need no test data."""

    problem: Problem
    data: ClientData
    test: Batch | None


class ProblemSettings(Protocol):
    """The settings of a problem. If it makes its own data, they declare ``needs_data: ClassVar[bool] = False``."""

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        """The problem with its clients' data.

        Args:
            seed: the seed of the run, for what the problem itself draws.
            num_clients: m.
            data: the partitioned data set; None for a problem that makes its own.
        """
        ...


def require_classes(data: Federated, problem: str) -> None:
    """Raise a ConfigError unless the targets are labels."""
    if not data.num_classes:
        raise ConfigError(f"{problem} needs labels, but the targets of {data.dataset.name} are numbers; see ridge_head")


def require_numbers(data: Federated, problem: str) -> None:
    """Raise a ConfigError if the inputs are tokens."""
    if data.clients.scaling is None:
        raise ConfigError(
            f"{problem} needs inputs that are numbers, but those of {data.dataset.name} are tokens; "
            "use a problem with a backbone that embeds them"
        )


def needs_data(settings: type) -> bool:
    """Whether problems with these settings need a data set; true unless they declare otherwise."""
    return getattr(settings, "needs_data", True)
