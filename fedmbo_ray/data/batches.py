"""What clients hold and how they draw from it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmbo_ray.rng import Seeds, fold, indices

Split = Literal["train", "validation"]
Clients = NDArray[np.int64]

READY_BYTES = 2**30  # up to which inputs are kept as numbers


@dataclass(frozen=True)
class Integers:
    """Numbers that a client draws for itself, uniform on {0, …, below − 1}; with `count`, that many."""

    below: int
    count: int | None = None

    def draw(self, clients: Clients, seeds: Seeds, device: torch.device) -> Tensor:
        numbers = indices(seeds, self.count or 1, np.full(len(clients), self.below))
        return torch.from_numpy(numbers if self.count else numbers[:, 0]).to(device)


@dataclass(frozen=True)
class Trait:
    """A number that belongs to a client (its speed, say): uniform on {low, …, high}, the same all through a run."""

    low: int
    high: int
    seed: int = 0

    def of(self, clients: Clients) -> NDArray[np.int64]:
        seeds = fold(np.array([self.seed % 2**64], dtype=np.uint64), clients)
        return self.low + indices(seeds, 1, np.full(len(clients), self.high - self.low + 1))[:, 0]

    def draw(self, clients: Clients, seeds: Seeds, device: torch.device) -> Tensor:
        return torch.from_numpy(self.of(clients)).to(device)


@dataclass(frozen=True)
class Draw:
    """What a client samples for one kernel: `size` independent samples of `split`, or all it has (None).

    With `count`, that many batches, stacked on a first axis; None means one batch and no such axis. Where the
    count is a client's own (a Trait), the stack is as high as the largest, and the rest of it is not used.
    """

    split: Split
    size: int | None
    count: int | Trait | None = None

    @property
    def height(self) -> int:
        """Of the stack."""
        if isinstance(self.count, Trait):
            return self.count.high
        return 1 if self.count is None else self.count

    def batches(self, clients: Clients) -> NDArray[np.int64]:
        """How many batches each client uses."""
        return self.count.of(clients) if isinstance(self.count, Trait) else np.full(len(clients), self.height)

    def total(self, clients: Clients) -> int:
        """How many batches they use together."""
        return int(self.batches(clients).sum()) if isinstance(self.count, Trait) else self.height * len(clients)


class Batch(NamedTuple):
    """Labelled samples; `rows` are their numbers in the whole data set, `weights` add up to one."""

    inputs: Tensor
    targets: Tensor
    rows: Tensor
    weights: Tensor

    def merged(self) -> "Batch":
        """The samples of all slots as one batch: its mean loss is the slots' mean loss."""
        inputs, targets, rows, weights = (field.flatten(0, 1) for field in self)
        return Batch(inputs, targets, rows, weights / len(self.weights))

    def repeated(self, count: int) -> "Batch":
        """Every slot's batch as a stack of `count` equal ones."""
        return Batch(*(field.unsqueeze(1).expand(-1, count, *field.shape[1:]) for field in self))

    def mean(self, losses: Tensor) -> Tensor:
        """The weighted mean of the samples' losses."""
        return (losses * self.weights).sum(-1)


def unstack(batches: Any) -> Iterator[Any]:
    """The batches of a draw with a count, one after the other; of several draws, tuples of them.

    Where all are the same (all local data, again and again), they are one object: see `layers.Looking`.
    """
    if isinstance(batches, Tensor):
        yield from batches.unbind(0)
    elif type(batches) is tuple:
        yield from zip(*map(unstack, batches), strict=True)
    elif all(field.stride(0) == 0 for field in batches):
        yield from repeat(type(batches)(*(field[0] for field in batches)), len(batches[0]))
    else:
        for parts in zip(*map(unstack, batches), strict=True):
            yield type(batches)(*parts)


class ClientData(Protocol):
    """The data of all clients; a block of slots draws its batches in one call."""

    @property
    def num_clients(self) -> int: ...

    @property
    def num_samples(self) -> int | None:
        """Over all clients; None when samples are made on demand."""
        ...

    def draw(self, clients: Clients, seeds: Seeds, draw: Draw, device: torch.device) -> Any:
        """One batch per slot, stacked on the first axis; slot i depends on clients[i], seeds[i] alone."""
        ...

    def samples(self, clients: Clients, draw: Draw) -> int:
        """How many samples these clients look at for a draw."""
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

    `inputs` are bytes, or numbers ready for use (see `astype`).
    """

    inputs: NDArray[Any]
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
        """With samples of that dtype.

        If there is room, all inputs are made numbers at once: a draw then merely gathers, in half the time. A large
        data set stays bytes until it is drawn, several times less to ship to a node.
        """
        if self.inputs.size * dtype.itemsize > READY_BYTES:
            return replace(self, dtype=dtype)
        return replace(self, dtype=dtype, inputs=self.standardized(torch.tensor(self.inputs), dtype).numpy())

    def draw(self, clients: Clients, seeds: Seeds, draw: Draw, device: torch.device) -> Batch:
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
        # A kernel takes the first batch of all slots, then the second, …: in that order they lie in memory.
        chosen = chosen.reshape(len(clients), draw.height, draw.size).swapaxes(0, 1)
        batch = self.take(chosen, torch.full(chosen.shape, 1 / draw.size, dtype=self.dtype), device)
        return Batch(*(field.transpose(0, 1) for field in batch))

    def samples(self, clients: Clients, draw: Draw) -> int:
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
        """Bytes as numbers of mean 0 and variance 1 over the training set."""
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
