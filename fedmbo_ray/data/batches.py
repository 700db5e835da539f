"""The data of the clients, and how they draw samples."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmbo_ray.core.rng import Seeds, fold, indices

Split = Literal["train", "validation"]
ClientIds = NDArray[np.int64]

READY_BYTES = 2**30  # larger inputs are kept as bytes, not as floats


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


@dataclass(frozen=True)
class Rows:
    """Rows of one split, client after client: client i owns order[start[i] : start[i] + size[i]]."""

    order: NDArray[np.int64]
    start: NDArray[np.int64]
    size: NDArray[np.int64]

    @staticmethod
    def of(rows_per_client: list[NDArray[np.int64]]) -> "Rows":
        size = np.array([len(rows) for rows in rows_per_client], dtype=np.int64)
        return Rows(np.concatenate(rows_per_client), np.cumsum(size) - size, size)


@dataclass(frozen=True)
class ArrayClients:
    """Clients that own rows of a data set; samples are drawn with replacement.

    `inputs` are bytes, or standardized floats (see `astype`).
    """

    inputs: NDArray[np.uint8] | NDArray[np.floating]
    targets: NDArray[np.int64]
    splits: dict[Split, Rows]
    mean: float
    std: float
    dtype: torch.dtype = torch.float32

    @property
    def num_clients(self) -> int:
        return len(self.splits["train"].size)

    @property
    def num_samples(self) -> int:
        return sum(len(rows.order) for rows in self.splits.values())

    def astype(self, dtype: torch.dtype) -> "ArrayClients":
        """The same clients with samples of that dtype.

        Inputs of up to `READY_BYTES` are converted to floats at once, which makes a draw twice as fast. A larger data
        set stays bytes until it is drawn, which makes it several times smaller to send to a node.
        """
        if self.inputs.size * dtype.itemsize > READY_BYTES:
            return replace(self, dtype=dtype)
        return replace(self, dtype=dtype, inputs=self.standardized(torch.tensor(self.inputs), dtype).numpy())

    def draw(self, clients: ClientIds, seeds: Seeds, draw: Draw, device: torch.device) -> Batch:
        rows = self.splits[draw.split]
        start, size = rows.start[clients][:, None], rows.size[clients]
        if draw.size is None:
            picked = np.minimum(np.arange(size.max()), size[:, None] - 1)
            weights = (np.arange(size.max()) < size[:, None]) / size[:, None]
            batch = self.take(rows.order[start + picked], torch.from_numpy(weights).to(self.dtype), device)
            return batch if draw.count is None else batch.repeated(draw.height)
        chosen = rows.order[start + indices(seeds, draw.size * draw.height, size)]
        if draw.count is None:
            return self.take(chosen, torch.full(chosen.shape, 1 / draw.size, dtype=self.dtype), device)
        # A kernel uses the first batch of all slots, then the second, …: store them in this order.
        chosen = chosen.reshape(len(clients), draw.height, draw.size).swapaxes(0, 1)
        batch = self.take(chosen, torch.full(chosen.shape, 1 / draw.size, dtype=self.dtype), device)
        return Batch(*(field.transpose(0, 1) for field in batch))

    def samples(self, clients: ClientIds, draw: Draw) -> int:
        if draw.size is None:
            return int((self.splits[draw.split].size[clients] * draw.batches(clients)).sum())
        return draw.size * draw.total(clients)

    def take(self, rows: NDArray[np.int64], weights: Tensor, device: torch.device) -> Batch:
        inputs = torch.from_numpy(self.inputs.take(rows, axis=0)).to(device)
        if inputs.dtype == torch.uint8:
            inputs = self.standardized(inputs, self.dtype)
        targets = torch.from_numpy(self.targets.take(rows)).to(device)
        return Batch(inputs, targets, torch.from_numpy(rows).to(device), weights.to(device))

    def standardized(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """Bytes as floats with mean 0 and variance 1 over the training set."""
        return inputs.to(dtype).sub_(self.mean).mul_(1 / self.std)


class Federated(NamedTuple):
    """A data set split over clients, with its test samples."""

    clients: ArrayClients
    test_inputs: NDArray[np.uint8]
    test_targets: NDArray[np.int64]
    num_classes: int
    corrupted: NDArray[np.bool_]  # which rows had their label replaced

    def test_batch(self, dtype: torch.dtype) -> Batch:
        inputs = self.clients.standardized(torch.tensor(self.test_inputs), dtype)
        targets = torch.from_numpy(self.test_targets)
        return Batch(inputs, targets, torch.arange(len(targets)), torch.full((len(targets),), 1 / len(targets)))
