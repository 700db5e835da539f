"""FedNest's loop as its authors' code has it: client after client, a DataLoader each, autograd.

SVRG below with one cohort, IHGP above with a shared random depth. One step on y, then one on x.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear
from torch.utils.data import DataLoader, Dataset

from fedmbo_ray.core.rng import stream


class Images(Dataset[tuple[Tensor, Tensor]]):
    """A client's images as bytes, standardized when they are asked for, one by one."""

    def __init__(self, data: Any, rows: Any) -> None:
        self.data, self.rows = data, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> tuple[Tensor, Tensor]:
        row = self.rows[item]
        image = self.data.standardized(torch.from_numpy(self.data.inputs[row].copy()), torch.float32)
        return image.flatten(), torch.tensor(self.data.targets[row])


@dataclass
class PlainFedNest:
    data: Any  # ArrayClients with inputs as bytes
    width: int
    classes: int
    seed: int
    n: int
    size: int
    local_steps: int
    terms: int
    alpha: float
    beta: float
    ell: float
    regularization: float
    loaders: dict[Any, DataLoader[Any]] = field(default_factory=dict)

    def round(self, k: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        rng = stream(self.seed, "plain", k)
        torch.manual_seed(int(rng.integers(2**63)))  # DataLoaders shuffle by the global state
        cohort = rng.integers(self.data.num_clients, size=self.n)
        q = self.mean(self.full_gradient(i, x, y) for i in cohort)
        y = self.mean(self.local_svrg(i, x, y, q) for i in cohort)

        depth = int(rng.integers(self.terms))
        cohort = rng.integers(self.data.num_clients, size=self.n)
        p = self.terms / self.ell * self.mean(self.grad_y(i, "validation", x, y) for i in cohort)
        for _ in range(depth):
            p = (
                p
                - self.mean(self.hessian(i, x, y, p) for i in rng.integers(self.data.num_clients, size=self.n))
                / self.ell
            )
        h = self.mean(self.through(i, x, y, p) for i in rng.integers(self.data.num_clients, size=self.n))
        return x - self.alpha * h, y

    def mean(self, parts: Iterator[Tensor]) -> Tensor:
        return torch.stack(list(parts)).mean(0)

    def loader(self, client: int, split: Any) -> DataLoader[Any]:
        if (client, split) not in self.loaders:
            rows = self.data.splits[split]
            own = rows.order[rows.start[client] : rows.start[client] + rows.size[client]]
            samples = Images(self.data, own)
            self.loaders[client, split] = DataLoader(samples, min(self.size, len(own)), shuffle=True, drop_last=True)
        return self.loaders[client, split]

    def batches(self, client: int, split: str, count: int) -> Iterator[Any]:
        """That many batches, pass after pass."""
        while count:
            for batch in self.loader(client, split):
                yield batch
                count -= 1
                if not count:
                    break

    def loss(self, x: Tensor, y: Tensor, batch: Any, regularization: float = 0.0) -> Tensor:
        images, targets = batch
        W, b = x[: -self.width].view(self.width, -1), x[-self.width :]
        V, c = y[: -self.classes].view(self.classes, -1), y[-self.classes :]
        loss = cross_entropy(linear(linear(images, W, b).relu(), V, c), targets)
        return loss + 0.5 * regularization * y.square().sum()

    def lower_gradient(self, x: Tensor, y: Tensor, batch: Any, create_graph: bool = False) -> Tensor:
        y = y if y.requires_grad else y.detach().requires_grad_()
        return torch.autograd.grad(self.loss(x, y, batch, self.regularization), y, create_graph=create_graph)[0]

    def full_gradient(self, client: int, x: Tensor, y: Tensor) -> Tensor:
        """On all local data, batch by batch."""
        total, samples = torch.zeros_like(y), 0
        for batch in DataLoader(self.loader(client, "train").dataset, batch_size=self.size):
            total += len(batch[1]) * self.lower_gradient(x, y, batch)
            samples += len(batch[1])
        return total / samples

    def local_svrg(self, client: int, x: Tensor, y: Tensor, q: Tensor) -> Tensor:
        y_i = y
        for batch in self.batches(client, "train", self.local_steps):
            y_i = y_i - self.beta * (self.lower_gradient(x, y_i, batch) - self.lower_gradient(x, y, batch) + q)
        return y_i

    def grad_y(self, client: int, split: str, x: Tensor, y: Tensor) -> Tensor:
        (batch,) = self.batches(client, split, 1)
        y = y.detach().requires_grad_()
        return torch.autograd.grad(self.loss(x, y, batch), y)[0]

    def hessian(self, client: int, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        (batch,) = self.batches(client, "train", 1)
        y = y.detach().requires_grad_()
        return torch.autograd.grad(self.lower_gradient(x, y, batch, create_graph=True) @ p, y)[0]

    def through(self, client: int, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        (validation,), (train,) = (self.batches(client, split, 1) for split in ("validation", "train"))
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        value = self.loss(x, y, validation) - self.lower_gradient(x, y, train, create_graph=True) @ p
        return torch.autograd.grad(value, x)[0]
