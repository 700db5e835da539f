"""Clients that own rows of arrays."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmbo_ray.core.rng import Seeds, indices
from fedmbo_ray.data.batches import Batch, ClientIds, Draw, Split
from fedmbo_ray.data.dataset import Dataset
from fedmbo_ray.data.in_file import InFile
from fedmbo_ray.data.values import Inputs, Targets, chunks

READY_BYTES = 2**30  # larger inputs are standardized when they are drawn


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

    def of_client(self, client: int) -> NDArray[np.int64]:
        """The rows of one client."""
        return self.order[self.start[client] :][: self.size[client]]


@dataclass(frozen=True)
class Scaling:
    """How inputs become numbers with mean 0 and variance 1 over the training rows: of all entries, or of each feature.

    Tokens have none.
    """

    mean: float | NDArray[np.float64]
    std: float | NDArray[np.float64]

    @staticmethod
    def of(inputs: Inputs) -> "Scaling | None":
        """Bytes share one mean and one deviation, features have their own; a constant one keeps its value 0."""
        if inputs.dtype == np.int64:
            return None
        if inputs.dtype == np.uint8:
            return Scaling(*_mean_and_std_of_bytes(inputs))
        mean = sum(part.sum(0, dtype=np.float64) for _, part in chunks(inputs)) / len(inputs)
        std = np.sqrt(sum(np.square(part - mean).sum(0) for _, part in chunks(inputs)) / len(inputs))
        return Scaling(mean, np.where(std > 0, std, 1.0))

    def apply(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """Scaled, in a tensor of its own."""
        if isinstance(self.mean, float) and isinstance(self.std, float):
            return inputs.to(dtype, copy=True).sub_(self.mean).mul_(1 / self.std)
        mean, scale = (torch.as_tensor(part, device=inputs.device).to(dtype) for part in (self.mean, 1 / self.std))
        return inputs.to(dtype, copy=True).sub_(mean).mul_(scale)


def _mean_and_std_of_bytes(inputs: Inputs) -> tuple[float, float]:
    """From exact sums: numpy's own std takes eight times the memory of the data."""
    total = sum(int(part.sum(dtype=np.int64)) for _, part in chunks(inputs))
    squares = sum(int((part.astype(np.int64) ** 2).sum()) for _, part in chunks(inputs))
    mean = total / inputs.size
    return mean, float(np.sqrt(squares / inputs.size - mean**2)) or 1.0


@dataclass(frozen=True)
class ArrayClients:
    """Clients that own rows of a data set; samples are drawn with replacement.

    Args:
        inputs: of all rows, as the data set has them, or ready to be used (see `astype`).
        targets: labels, or numbers to predict.
        splits: which rows each client owns in each split.
        scaling: how inputs are standardized; None for tokens.
        shares: what each client's losses are multiplied by, with mean 1; None if all count alike.
        dtype: of inputs, numbers to predict and weights.
        ready: whether `inputs` are standardized already.
        placed: inputs and targets on an accelerator; draws are then gathered there (see `on`).
    """

    inputs: Inputs
    targets: Targets
    splits: dict[Split, Rows]
    scaling: Scaling | None
    shares: NDArray[np.float64] | None = None
    dtype: torch.dtype = torch.float32
    ready: bool = False
    placed: tuple[Tensor, Tensor] | None = None

    @property
    def num_clients(self) -> int:
        return len(self.splits["train"].size)

    @property
    def num_samples(self) -> int:
        return sum(len(rows.order) for rows in {id(rows): rows for rows in self.splits.values()}.values())

    def row_weights(self, split: Split) -> NDArray[np.float64]:
        """What each row counts in the mean over clients of their means over a split; 0 for rows outside it."""
        rows, weights = self.splits[split], np.zeros(len(self.targets))
        each = (1.0 if self.shares is None else self.shares) / (self.num_clients * rows.size)
        weights[rows.order] = np.repeat(each, rows.size)
        return weights

    def with_one_split(self) -> "ArrayClients":
        """All rows of a client are in both of its splits, for problems whose lower loss is minus the upper one."""
        cuts = [np.split(rows.order, rows.start[1:]) for rows in self.splits.values()]
        both = Rows.of([np.concatenate(parts) for parts in zip(*cuts, strict=True)])
        return replace(self, splits=dict.fromkeys(self.splits, both))

    def rows_of(self, client: int) -> NDArray[np.int64]:
        """All rows of a client."""
        return np.concatenate([rows.of_client(client) for rows in self.splits.values()])

    def astype(self, dtype: torch.dtype) -> "ArrayClients":
        """The same clients with samples of that dtype.

        Inputs of up to `READY_BYTES` are standardized at once, which makes a draw twice as fast. A larger data set
        stays as it is until it is drawn: bytes are several times smaller to send to a node, and files are not copied.
        """
        large = isinstance(self.inputs, InFile) or self.inputs.size * dtype.itemsize > READY_BYTES
        if self.ready or self.scaling is None or large:
            return replace(self, dtype=dtype)
        return replace(self, dtype=dtype, inputs=self._ready(dtype), ready=True)

    def _ready(self, dtype: torch.dtype) -> Inputs:
        """Standardized, in memory of numpy's: Linux gives it large pages, in which rows are found faster."""
        ready = np.empty(self.inputs.shape, torch.empty(0, dtype=dtype).numpy().dtype)
        for start, part in chunks(self.inputs):
            ready[start : start + len(part)] = self.standardized(torch.tensor(part), dtype).numpy()
        return ready

    def on(self, device: torch.device, room: float) -> Self:
        """The same clients with their samples on a device, if these take at most `room` bytes."""
        size = self.inputs.size * self.inputs.dtype.itemsize + self.targets.nbytes
        if isinstance(self.inputs, InFile) or size > room:
            return self
        return replace(self, placed=(torch.tensor(self.inputs).to(device), torch.tensor(self.targets).to(device)))

    def draw(self, clients: ClientIds, seeds: Seeds, draw: Draw, device: torch.device) -> Batch:
        rows = self.splits[draw.split]
        start, size = rows.start[clients][:, None], rows.size[clients]
        if draw.size is None:
            picked = np.minimum(np.arange(size.max()), size[:, None] - 1)
            weights = (np.arange(size.max()) < size[:, None]) / size[:, None]
            batch = self.take(rows.order[start + picked], self.weighed(weights, clients), device)
            return batch if draw.count is None else batch.repeated(draw.height)
        chosen = rows.order[start + indices(seeds, draw.size * draw.height, size)]
        if draw.count is None:
            return self.take(chosen, self.alike(chosen.shape, clients, device), device)
        # A kernel uses the first batch of all slots, then the second, and so on: store them in this order.
        chosen = chosen.reshape(len(clients), draw.height, draw.size).swapaxes(0, 1)
        batch = self.take(chosen, self.alike(chosen.shape, clients, device), device)
        return Batch(*(field.transpose(0, 1) for field in batch))

    def weighed(self, weights: NDArray[np.float64], clients: ClientIds) -> Tensor:
        """The weights of samples whose last but one axis are these clients, times the clients' shares."""
        if self.shares is not None:
            weights = weights * self.shares[clients][:, None]
        return torch.from_numpy(weights).to(self.dtype)

    def alike(self, shape: tuple[int, ...], clients: ClientIds, device: torch.device) -> Tensor:
        """Weights of samples that all count the same, made on the device where they are used."""
        if self.shares is None:
            return torch.full(shape, 1 / shape[-1], dtype=self.dtype, device=device)
        own = torch.from_numpy(1 / shape[-1] * self.shares[clients]).to(device, self.dtype)
        return own.unsqueeze(1).expand(shape).contiguous()

    def samples(self, clients: ClientIds, draw: Draw) -> int:
        if draw.size is None:
            return int((self.splits[draw.split].size[clients] * draw.batches(clients)).sum())
        return draw.size * draw.total(clients)

    def take(self, rows: NDArray[np.int64], weights: Tensor, device: torch.device) -> Batch:
        there = torch.from_numpy(rows).to(device)
        if self.placed is None:
            inputs = torch.from_numpy(self.inputs.take(rows, axis=0)).to(device)
            targets = torch.from_numpy(self.targets.take(rows)).to(device)
        else:
            inputs, targets = (part[there] for part in self.placed)
        if not self.ready:
            inputs = self.standardized(inputs, self.dtype)
        if targets.is_floating_point():
            targets = targets.to(self.dtype)
        return Batch(inputs, targets, there, weights.to(device))

    def standardized(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """Inputs as the data set has them, as clients see them; tokens stay as they are."""
        return inputs if self.scaling is None else self.scaling.apply(inputs, dtype)


class Federated(NamedTuple):
    """A data set split over clients, with its test samples; what the `build` of a problem gets.

    Args:
        clients: the rows of every client.
        dataset: what was split; its training labels may differ from those that clients see (`corrupted`).
        corrupted: which training rows had their label replaced.
    """

    clients: ArrayClients
    dataset: Dataset
    corrupted: NDArray[np.bool_]

    @property
    def num_classes(self) -> int:
        """The number of labels; 0 for regression."""
        return self.dataset.num_classes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return self.dataset.shape

    @property
    def vocabulary(self) -> int:
        """The number of tokens; 0 if the inputs are numbers."""
        if self.clients.scaling is not None:
            return 0
        both = (self.dataset.train_inputs, self.dataset.test_inputs)
        return 1 + max(int(part.max()) for inputs in both for _, part in chunks(inputs))

    def test_batch(self, dtype: torch.dtype) -> Batch:
        """All test samples, as clients would see them."""
        inputs = self.clients.standardized(torch.tensor(np.asarray(self.dataset.test_inputs)), dtype)
        targets = torch.tensor(self.dataset.test_targets)
        targets = targets.to(dtype) if targets.is_floating_point() else targets
        weights = torch.full((len(targets),), 1 / len(targets), dtype=dtype)
        return Batch(inputs, targets, torch.arange(len(targets)), weights)
