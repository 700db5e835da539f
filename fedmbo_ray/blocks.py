"""What a backend computes: one kernel on blocks of slots."""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.func import vmap

from fedmbo_ray.data import ClientData, Draw, Integers, Trait
from fedmbo_ray.data import Clients as Cohort
from fedmbo_ray.layers import Looking, layered
from fedmbo_ray.oracles import Gradient, Tensors
from fedmbo_ray.rng import Seeds, fold

Draws = Draw | tuple[Draw | Integers | Trait, ...]


class Job(NamedTuple):
    """What all blocks of one communication have in common."""

    kernel: Any  # (problem, batch, *shared, *each, *own) -> what the client uploads, then its new own rows
    shared: tuple[Any, ...]  # tensors; arrays on their way to an actor
    draw: Draws
    summed: bool  # whether a block returns the sum over its slots of what they upload
    own: int = 0  # how many of the last rows of a block, and of the last outputs, never leave the client


class Block(NamedTuple):
    """Slots that one call computes."""

    clients: Cohort
    seeds: Seeds
    each: tuple[Any, ...]  # likewise


class Backend(Protocol):
    """Computes blocks somewhere; results in the order of `blocks`. The description goes into a run's last record."""

    @property
    def description(self) -> str: ...

    def run(self, job: Job, blocks: list[Block]) -> list[tuple[Tensor, ...]]: ...


def run_block(problem: Any, data: ClientData, job: Job, block: Block, device: torch.device) -> tuple[Tensor, ...]:
    """What a block's clients compute: their batches, then the kernel on all of them at once."""
    batches = draw_batches(data, job.draw, block, device)
    shared = tuple(arg.to(device) for arg in job.shared)
    each = tuple(rows.to(device) for rows in block.each)
    if isinstance(job.kernel, Gradient):
        method = job.kernel.sum if job.summed else job.kernel.each
        return _wrap(method(problem, batches, shared, each))
    axes = (0, *(None for _ in shared), *(0 for _ in each))
    written = [tensor._version for tensor in (*shared, *each)]
    looking = Looking(problem) if layered(problem) else problem
    outputs = _wrap(vmap(lambda batch, *args: job.kernel(looking, batch, *args), axes)(batches, *shared, *each))
    if written != [tensor._version for tensor in (*shared, *each)]:
        raise ValueError("a kernel must not write to its arguments")
    uploaded = len(outputs) - job.own
    if job.own and [out.shape for out in outputs[uploaded:]] != [rows.shape for rows in each[len(each) - job.own :]]:
        raise ValueError(f"a kernel must return its {job.own} own row(s), each of its shape, after what it uploads")
    return tuple(out.sum(0) if job.summed and i < uploaded else out for i, out in enumerate(outputs))


def draw_batches(data: ClientData, draw: Draws, block: Block, device: torch.device) -> Any:
    """One batch per slot; for several draws a tuple of batches that are independent of each other."""
    if isinstance(draw, Draw):
        return data.draw(block.clients, block.seeds, draw, device)
    parts = []
    for number, each in enumerate(draw):
        clients, seeds = block.clients, fold(block.seeds, number)
        drawn = data.draw(clients, seeds, each, device) if isinstance(each, Draw) else each.draw(clients, seeds, device)
        parts.append(drawn)
    return tuple(parts)


def _wrap(outputs: Tensors) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)
