"""What clients draw: batches of samples, and random numbers."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmbo_ray.core.rng import Seeds, fold, indices

Split = Literal["train", "validation"]
ClientIds = NDArray[np.int64]


@dataclass(frozen=True)
class Integers:
    """A random number that a client draws, uniform on {0, …, below − 1}; with `count`, a vector of that many."""

    below: int
    count: int | None = None

    def draw(self, clients: ClientIds, seeds: Seeds, device: torch.device) -> Tensor:
        numbers = indices(seeds, self.count or 1, np.full(len(clients), self.below))
        return torch.from_numpy(numbers if self.count else numbers[:, 0]).to(device)


@dataclass(frozen=True)
class Trait:
    """A number that a client keeps for the whole run, such as its speed; uniform on {low, …, high} over clients."""

    low: int
    high: int
    seed: int = 0

    def of(self, clients: ClientIds) -> NDArray[np.int64]:
        seeds = fold(np.array([self.seed % 2**64], dtype=np.uint64), clients)
        return self.low + indices(seeds, 1, np.full(len(clients), self.high - self.low + 1))[:, 0]

    def draw(self, clients: ClientIds, seeds: Seeds, device: torch.device) -> Tensor:
        return torch.from_numpy(self.of(clients)).to(device)


@dataclass(frozen=True)
class Draw:
    """What a client samples for one kernel: `size` independent samples of `split`, or all of them (None).

    Args:
        split: "train", for the lower loss, or "validation", for the upper one.
        size: the size of a batch, drawn with replacement; None takes all samples of the client, each once.
        count: the number of batches, stacked on a first axis for `unstack`; None means one batch without this axis. If
            the number differs between clients (a Trait), the stack has the largest, and clients ignore the rest.

    Example:
        >>> Draw("train", 32, count=5).height  # five batches of 32 samples, for five local steps
        5
    """

    split: Split
    size: int | None
    count: int | Trait | None = None

    @property
    def height(self) -> int:
        """How many batches the stack has."""
        if isinstance(self.count, Trait):
            return self.count.high
        return 1 if self.count is None else self.count

    def batches(self, clients: ClientIds) -> NDArray[np.int64]:
        """How many batches each client uses."""
        return self.count.of(clients) if isinstance(self.count, Trait) else np.full(len(clients), self.height)

    def total(self, clients: ClientIds) -> int:
        """How many batches these clients use in total."""
        return int(self.batches(clients).sum()) if isinstance(self.count, Trait) else self.height * len(clients)


class Samples(Protocol):
    """The samples that a problem's losses take: a NamedTuple of tensors, such as `Batch`."""

    def merged(self) -> Self:
        """The samples of all slots as one batch; its loss is the mean of the slots' losses."""
        ...

    def __iter__(self) -> Iterator[Tensor]: ...


# What a kernel gets: samples for a `Draw`, a tensor for `Integers` or a `Trait`, a tuple for several of these.
Drawn = Samples | Tensor | tuple["Drawn", ...]
DrawnT = TypeVar("DrawnT", bound=Drawn)


class Batch(NamedTuple):
    """Labelled samples; `rows` are their positions in the whole data set, `weights` sum to one."""

    inputs: Tensor
    targets: Tensor
    rows: Tensor
    weights: Tensor

    def merged(self) -> "Batch":
        """The samples of all slots as one batch; its mean loss is the mean of the slots' losses."""
        inputs, targets, rows, weights = (field.flatten(0, 1) for field in self)
        return Batch(inputs, targets, rows, weights / len(self.weights))

    def repeated(self, count: int) -> "Batch":
        """The batch of every slot, repeated `count` times as a stack."""
        return Batch(*(field.unsqueeze(1).expand(-1, count, *field.shape[1:]) for field in self))

    def mean(self, losses: Tensor) -> Tensor:
        """The weighted mean of the samples' losses."""
        return (losses * self.weights).sum(-1)


def unstack(batches: DrawnT) -> Iterator[DrawnT]:
    """Iterate over the batches of a draw with a count; for several draws, over tuples of batches.

    If all batches are the same (all local data each time), they are one object, which a `FeatureCache` recognizes.
    """
    whole: Any = batches  # mypy does not know that a part has the type of the whole
    if isinstance(batches, Tensor):
        yield from whole.unbind(0)
    elif type(batches) is tuple:
        yield from zip(*map(unstack, whole), strict=True)
    elif len(whole[0]) and all(field.stride(0) == 0 for field in whole):
        yield from repeat(whole._make(field[0] for field in whole), len(whole[0]))
    else:
        yield from map(whole._make, zip(*map(unstack, whole), strict=True))


class ClientData(Protocol):
    """The data of all clients; a block of slots draws its batches in one call."""

    @property
    def num_clients(self) -> int: ...

    @property
    def num_samples(self) -> int | None:
        """The number of samples of all clients; None if samples are made on demand."""
        ...

    def draw(self, clients: ClientIds, seeds: Seeds, draw: Draw, device: torch.device) -> Samples:
        """One batch per slot, stacked on the first axis; slot i depends only on clients[i] and seeds[i]."""
        ...

    def samples(self, clients: ClientIds, draw: Draw) -> int:
        """How many samples these clients use for a draw."""
        ...
