"""Means over all clients on all their data: with one y for all clients, or with a y of each client's own."""

import math
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.data.batches import ClientIds, Draw, Split
from fedmbo_ray.problems.base import Problem, Task, is_layered
from fedmbo_ray.problems.head_derivatives import FeatureCache
from fedmbo_ray.problems.oracles import Gradient, losses, one_slot

CLIENTS_TOGETHER = 50
SPLITS: tuple[Split, ...] = ("train", "validation")


class WholeData(Protocol):
    """The losses and their derivatives at one x; y is a flat vector, that of all clients or of one after the other."""

    def in_y(self, split: Split, oracle: Gradient[Tensor], x: Tensor, y: Tensor, *v: Tensor) -> Tensor:
        """A gradient in y, or a product with the Hessian; of each client's own loss if y is its own."""
        ...

    def in_x(self, split: Split, oracle: Gradient[Tensor], x: Tensor, y: Tensor, *v: Tensor) -> Tensor:
        """The mean over clients of a gradient in x."""
        ...

    def loss(self, split: Split, x: Tensor, y: Tensor) -> float:
        """The mean over clients of g_i (train) or of f_i (validation)."""
        ...


class ClientGroup(NamedTuple):
    """All data of some clients."""

    ids: ClientIds
    share: float  # of all clients
    problem: Problem  # one that remembers what x makes of these data
    batches: dict[Split, Any]


def groups_of(task: Task, merged: bool) -> list[ClientGroup]:
    """The clients in groups; merged, the data of a group are one batch, else there is one for each client."""
    m, cpu, made = task.data.num_clients, torch.device("cpu"), []
    for ids in np.array_split(np.arange(m), math.ceil(m / CLIENTS_TOGETHER)):
        seeds, batches = draw_seeds(stream(0, "all data"), len(ids)), dict[Split, Any]()
        for split in SPLITS:
            drawn = task.data.draw(ids, seeds, Draw(split, None), cpu)
            batches[split] = one_slot(drawn) if merged else drawn
        problem: Any = FeatureCache(task.problem) if is_layered(task.problem) else task.problem
        made.append(ClientGroup(ids, len(ids) / m, problem, batches))
    return made


class SharedLower:
    """One y for all clients."""

    def __init__(self, task: Task) -> None:
        self.groups = groups_of(task, merged=True)

    def in_y(self, split: Split, oracle: Gradient[Tensor], x: Tensor, y: Tensor, *v: Tensor) -> Tensor:
        parts = [oracle.sum(g.problem, g.batches[split], (x, y, *v), ()) for g in self.groups]
        return total([g.share * part for g, part in zip(self.groups, parts, strict=True)])  # type: ignore[operator]

    in_x = in_y

    def loss(self, split: Split, x: Tensor, y: Tensor) -> float:
        with torch.no_grad():
            return sum(g.share * float(_losses(g, split, x, y.unsqueeze(0))) for g in self.groups)


class PersonalLower:
    """A y for each client, one after the other in one vector."""

    def __init__(self, task: Task) -> None:
        self.groups, self.num_clients = groups_of(task, merged=False), task.data.num_clients

    def in_y(self, split: Split, oracle: Gradient[Tensor], x: Tensor, y: Tensor, *v: Tensor) -> Tensor:
        rows = partial(self._rows, (y, *v))
        parts = [oracle.each(g.problem, g.batches[split], (x,), rows(g.ids)) for g in self.groups]
        return torch.cat(parts).flatten()  # type: ignore[arg-type]

    def in_x(self, split: Split, oracle: Gradient[Tensor], x: Tensor, y: Tensor, *v: Tensor) -> Tensor:
        rows = partial(self._rows, (y, *v))
        parts = [oracle.sum(g.problem, g.batches[split], (x,), rows(g.ids)) for g in self.groups]
        return total(parts) / self.num_clients  # type: ignore[arg-type]

    def loss(self, split: Split, x: Tensor, y: Tensor) -> float:
        with torch.no_grad():
            found = [float(_losses(g, split, x, *self._rows((y,), g.ids)).sum()) for g in self.groups]
        return sum(found) / self.num_clients

    def _rows(self, vectors: tuple[Tensor, ...], ids: ClientIds) -> tuple[Tensor, ...]:
        return tuple(vector.view(self.num_clients, -1)[torch.from_numpy(ids)] for vector in vectors)


def total(parts: list[Tensor]) -> Tensor:
    """Their sum, from first to last."""
    return torch.stack(parts).sum(0)


def _losses(group: ClientGroup, split: Split, x: Tensor, ys: Tensor) -> Tensor:
    problem = group.problem
    return losses(problem.lower if split == "train" else problem.upper, problem, x, ys, group.batches[split])
