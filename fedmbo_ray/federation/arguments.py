"""Converts the arguments of `Clients.map` and `Clients.mean`, and their results, to and from the form of blocks."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.data.batches import ClientIds
from fedmbo_ray.federation.draws import Draws
from fedmbo_ray.federation.execution import Job
from fedmbo_ray.problems.oracles import Tensors

RowTensors = Tensor | Sequence[Tensor]


def remembered(memory: Tensor, clients: ClientIds, rows: Tensor) -> Tensor:
    """The memory of all clients with these clients' rows replaced; if a client has two slots, the last row counts."""
    ids, last = np.unique(clients[::-1], return_index=True)
    memory = memory.clone()
    memory[torch.from_numpy(ids)] = rows[torch.from_numpy(len(clients) - 1 - last)]
    return memory


def as_tensor(argument: Tensor | float) -> Tensor:
    """A number as a float64 scalar; vectors that are combined with it keep their dtype."""
    return argument if isinstance(argument, Tensor) else torch.tensor(argument, dtype=torch.float64)


def job_of(kernel: Callable[..., Tensors], shared: tuple[Tensor | float, ...], draw: Draws, summed: bool) -> Job:
    """The job of every block for a call of `map` or `mean`."""
    return Job(kernel, tuple(map(as_tensor, shared)), draw, summed)


def as_rows(rows: RowTensors) -> tuple[Tensor, ...]:
    """One tensor or several, as a tuple."""
    return (rows,) if isinstance(rows, Tensor) else tuple(rows)


def unwrapped(outputs: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """The output of a kernel that returns one tensor, or the tuple of several."""
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
