"""What a backend computes: one kernel on blocks of slots."""

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fedmbo_ray.core.compat import writes
from fedmbo_ray.core.rng import Seeds, fold
from fedmbo_ray.data.batches import ClientData, ClientIds, Draw, Integers, Trait
from fedmbo_ray.federation.reduction import A, Joined, Part
from fedmbo_ray.problems.base import Problem, capabilities, is_layered
from fedmbo_ray.problems.head_derivatives import FeatureCache
from fedmbo_ray.problems.oracles import Gradient, Tensors

Draws = Draw | tuple[Draw | Integers | Trait, ...]


class Job(NamedTuple):
    """What all blocks of one communication have in common."""

    kernel: Callable[..., Tensors]  # of problem, batch, *shared, *each, *own: what is uploaded, then the new own rows
    shared: tuple[Tensor, ...]
    draw: Draws
    summed: bool  # whether a block returns the sum over its slots of what they upload
    own: int = 0  # how many of the last rows of a block, and of the last outputs, never leave the client

    def part(self, number: int, outputs: tuple[A, ...]) -> Part[A]:
        """What a block returns, as part of what all do."""
        sums = outputs[: len(outputs) - self.own] if self.summed else ()
        return Part(number, 1, sums, (outputs[len(sums) :],))

    def whole(self, results: Iterable[tuple[Tensor, ...]], total: int) -> Part[Tensor]:
        """What all blocks return, from first to last."""
        found = Joined(total, (self.part(number, outputs) for number, outputs in enumerate(results))).whole
        assert found is not None
        return found


class Block(NamedTuple):
    """Slots that one call computes."""

    clients: ClientIds
    seeds: Seeds
    each: tuple[Tensor, ...]  # a row for every slot


class Seconds(NamedTuple):
    """On the wall, and of this thread's processor."""

    wall: float = 0.0
    cpu: float = 0.0

    @staticmethod
    def now() -> "Seconds":
        return Seconds(time.monotonic(), time.thread_time())

    def plus(self, other: "Seconds", times: float = 1.0) -> "Seconds":
        return Seconds(self.wall + times * other.wall, self.cpu + times * other.cpu)

    def minus(self, other: "Seconds") -> "Seconds":
        return self.plus(other, -1.0)


class Backend(Protocol):
    """Computes blocks somewhere, and joins what they return. The description goes into a run's last record."""

    @property
    def description(self) -> str: ...

    @property
    def away(self) -> "Seconds":
        """What other runs have spent in this thread while this one waited for its blocks."""
        ...

    def run(self, job: Job, blocks: list[Block]) -> Part[Tensor]: ...

    def close(self) -> None: ...


def run_block(problem: Problem, data: ClientData, job: Job, block: Block, device: torch.device) -> tuple[Tensor, ...]:
    """What a block's clients compute: their batches, then the kernel on all of them at once."""
    if isinstance(job.kernel, Gradient) and capabilities(problem).stacks_all:
        return run_together(problem, data, [(job, block)], device)[0]
    batches = draw_batches(data, job.draw, block, device)
    shared = tuple(arg.to(device) for arg in job.shared)
    each = tuple(rows.to(device) for rows in block.each)
    if isinstance(job.kernel, Gradient):
        method = job.kernel.sum if job.summed else job.kernel.each
        return _wrap(method(problem, batches, shared, each))
    axes = (0, *(None for _ in shared), *(0 for _ in each))
    written = [writes(tensor) for tensor in (*shared, *each)]
    cached = FeatureCache(problem) if is_layered(problem) else problem
    outputs = _wrap(vmap(lambda batch, *args: job.kernel(cached, batch, *args), axes)(batches, *shared, *each))
    if written != [writes(tensor) for tensor in (*shared, *each)]:
        raise ValueError("a kernel must not write to its arguments")
    uploaded = len(outputs) - job.own
    if job.own and [out.shape for out in outputs[uploaded:]] != [rows.shape for rows in each[len(each) - job.own :]]:
        raise ValueError(f"a kernel must return its {job.own} own row(s), each of its shape, after what it uploads")
    return tuple(out.sum(0) if job.summed and i < uploaded else out for i, out in enumerate(outputs))


def run_together(
    problem: Problem, data: ClientData, calls: list[tuple[Job, Block]], device: torch.device
) -> list[tuple[Tensor, ...]]:
    """Blocks with the same gradient and draw, maybe of several runs, in one call; for problems that stack all.

    Each result has the bits that it would have alone.
    """
    (job, block), sizes = calls[0], [len(block.clients) for _, block in calls]
    assert isinstance(job.kernel, Gradient)
    clients, seeds = (np.concatenate([block[i] for _, block in calls]) for i in (0, 1))
    batches = draw_batches(data, job.draw, Block(clients, seeds, ()), device)
    shared = [torch.stack(parts).to(device) for parts in zip(*(job.shared for job, _ in calls), strict=True)]
    if job.summed and not block.each:  # one point for all slots of a block: their samples make one batch
        gradients = job.kernel.rows(problem, batch_of_each(batches, sizes), *shared)
        return [tuple(size * part[i] for part in gradients) for i, size in enumerate(sizes)]
    rows = [part.repeat_interleave(torch.tensor(sizes), 0) for part in shared]
    each = [torch.cat(parts).to(device) for parts in zip(*(block.each for _, block in calls), strict=True)]
    gradients = job.kernel.rows(problem, batches, *rows, *each)
    parts = [cut(part, sizes, Tensor.sum) if job.summed else part.split(sizes) for part in gradients]
    return list(zip(*parts, strict=True))


def batch_of_each(batches: Any, sizes: list[int]) -> Any:
    """The samples of so many slots each as the batch of one slot; of a tuple of batches, part by part."""
    if type(batches) is tuple:
        return tuple(batch_of_each(part, sizes) for part in batches)
    return type(batches)(*(torch.stack(cut(field, sizes, Tensor.mean)) for field in batches))


def cut(rows: Tensor, sizes: list[int], reduce: Callable[[Tensor, int], Tensor]) -> list[Tensor]:
    """Rows in groups of the given sizes, each reduced to one."""
    if len(set(sizes)) == 1:
        return list(reduce(rows.unflatten(0, (len(sizes), sizes[0])), 1))
    return [reduce(part, 0) for part in rows.split(sizes)]


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
