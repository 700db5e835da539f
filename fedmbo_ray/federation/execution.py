"""What a backend computes: one kernel on blocks of slots."""

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fedmbo_ray.core.compat import writes
from fedmbo_ray.core.rng import Seeds
from fedmbo_ray.data.batches import ClientIds
from fedmbo_ray.federation.columns import RelayCall, run_relays
from fedmbo_ray.federation.draws import Draws, PartOfTest, batch_of_each, cut, draw_batches
from fedmbo_ray.federation.prepared import Prepared
from fedmbo_ray.federation.reduction import A, Joined, Part
from fedmbo_ray.federation.relay import Relay
from fedmbo_ray.problems.base import Problem, Task, capabilities, is_layered
from fedmbo_ray.problems.figures import part_of
from fedmbo_ray.problems.head_derivatives import FeatureCache
from fedmbo_ray.problems.oracles import Gradient, Tensors, Y


class Job(NamedTuple):
    """What all blocks of one communication have in common."""

    kernel: "Callable[..., Tensors] | BlockKernel | Relay"  # of problem, batch, *shared, *each, *own: uploads, own rows
    shared: tuple[Tensor, ...]
    draw: Draws
    summed: bool  # whether a block returns the sum over its slots of what they upload
    own: int = 0  # how many of the last rows of a block, and of the last outputs, never leave the client
    at: int | None = None  # which of the communications that were foreseen together; None if it was not foreseen

    def part(self, number: int, outputs: tuple[A, ...]) -> Part[A]:
        """What a block returns, as part of what all do."""
        sums = outputs[: len(outputs) - self.own] if self.summed else ()
        return Part(number, 1, sums, (outputs[len(sums) :],))

    def whole(self, results: Iterable[tuple[Tensor, ...]], total: int) -> Part[Tensor]:
        """What all blocks return, from first to last."""
        found = Joined(total, (self.part(number, outputs) for number, outputs in enumerate(results))).whole
        assert found is not None
        return found


class BlockKernel(NamedTuple):
    """A kernel that computes all slots of a block in one call, and is not differentiated."""

    function: Callable[..., Tensors]  # of problem, batches, *shared, *each: a row for every slot, or sums over them


class Block(NamedTuple):
    """Slots that one call computes; in a relay, columns with all their clients."""

    clients: ClientIds  # in a relay, row l has those after l steps; if foreseen, a row for each communication
    seeds: Seeds
    each: tuple[Tensor, ...]  # a row for every slot; in a relay, the number of steps of each column


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


def run_block(
    task: Task, job: Job, block: Block, device: torch.device, prepared: Prepared | None = None
) -> tuple[Tensor, ...]:
    """What a block's clients compute: their batches, then the kernel on all of them at once.

    `prepared` keeps the batches of foreseen communications; without it, they are drawn again.
    """
    if job.at is not None:
        return _foreseen(task, job, job.at, block, device, prepared or Prepared())
    problem, kernel = task.problem, job.kernel
    if joinable(problem, job) or isinstance(kernel, Relay):
        return run_together(task, [(job, block)], device)[0]
    batches = _drawn(task, job.draw, block, device)
    shared = tuple(arg.to(device) for arg in job.shared)
    each = tuple(rows.to(device) for rows in block.each)
    if isinstance(kernel, BlockKernel):
        with torch.no_grad():
            return _wrap(kernel.function(problem, batches, *shared, *each))
    if isinstance(kernel, Gradient):
        method = kernel.sum if job.summed else kernel.each
        return _wrap(method(problem, batches, shared, each))
    return _mapped(problem, kernel, job, batches, shared, each)


def _foreseen(
    task: Task, job: Job, at: int, block: Block, device: torch.device, prepared: Prepared
) -> tuple[Tensor, ...]:
    problem, kernel = task.problem, job.kernel
    if not (isinstance(kernel, Gradient) and kernel.wrt == Y and job.shared and is_layered(problem)):
        return run_block(task, *now(job, block), device)  # x can't be applied to batches beforehand
    x, *rest = (arg.to(device) for arg in job.shared)
    found = prepared.of(task.data, problem, job.draw, block.clients, block.seeds, x, at)
    shared, each = (found.x, *rest), tuple(rows.to(device) for rows in block.each)
    method = kernel.sum if job.summed else kernel.each
    return _wrap(method(cast("Problem", found.problem), found.batches[at], shared, each))


def now(job: Job, block: Block) -> tuple[Job, Block]:
    """The job and the block of this communication alone, without those that were foreseen with it."""
    return job._replace(at=None), block._replace(clients=block.clients[job.at], seeds=block.seeds[job.at])


def _drawn(task: Task, draw: Draws, block: Block, device: torch.device) -> Any:
    if isinstance(draw, PartOfTest):
        assert task.test is not None
        return part_of(task.test, int(block.clients[0]), device)
    return draw_batches(task.data, draw, block.clients, block.seeds, device)


def _mapped(
    problem: Problem,
    kernel: Callable[..., Tensors],
    job: Job,
    batches: Any,
    shared: tuple[Tensor, ...],
    each: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    """Run a kernel, written for one client, on all slots at once."""
    axes = (0, *(None for _ in shared), *(0 for _ in each))
    written = [writes(tensor) for tensor in (*shared, *each)]
    cached = FeatureCache(problem) if is_layered(problem) else problem
    outputs = _wrap(vmap(lambda batch, *args: kernel(cached, batch, *args), axes)(batches, *shared, *each))
    if written != [writes(tensor) for tensor in (*shared, *each)]:
        raise ValueError("a kernel must not write to its arguments")
    uploaded = len(outputs) - job.own
    if job.own and [out.shape for out in outputs[uploaded:]] != [rows.shape for rows in each[len(each) - job.own :]]:
        raise ValueError(f"a kernel must return its {job.own} own row(s), each of its shape, after what it uploads")
    return tuple(out.sum(0) if job.summed and i < uploaded else out for i, out in enumerate(outputs))


def joinable(problem: Problem, job: Job) -> bool:
    """Whether blocks of several runs may be computed in one call."""
    return capabilities(problem).stacks_all and isinstance(job.kernel, Gradient | Relay)


def run_together(task: Task, calls: list[tuple[Job, Block]], device: torch.device) -> list[tuple[Tensor, ...]]:
    """Compute blocks with the same kernel and draw, also of several runs, in one call; several only if `joinable`.

    Each result has the same bits as if it were computed alone.
    """
    (job, block), sizes, problem = calls[0], [len(block.clients) for _, block in calls], task.problem
    if isinstance(job.kernel, Relay):
        relays = [RelayCall(job.shared, *block[:2], block.each[0].numpy()) for job, block in calls]
        return run_relays(problem, task.data, job.kernel, relays, device)
    assert isinstance(job.kernel, Gradient)
    clients, seeds = (np.concatenate([block[i] for _, block in calls]) for i in (0, 1))
    batches = draw_batches(task.data, job.draw, clients, seeds, device)
    shared = [torch.stack(parts).to(device) for parts in zip(*(job.shared for job, _ in calls), strict=True)]
    if job.summed and not block.each:  # one point for all slots of a block: their samples make one batch
        gradients = job.kernel.rows(problem, batch_of_each(batches, sizes), *shared)
        return [tuple(size * part[i] for part in gradients) for i, size in enumerate(sizes)]
    rows = [part.repeat_interleave(torch.tensor(sizes), 0) for part in shared]
    each = [torch.cat(parts).to(device) for parts in zip(*(block.each for _, block in calls), strict=True)]
    gradients = job.kernel.rows(problem, batches, *rows, *each)
    parts = [cut(part, sizes, Tensor.sum) if job.summed else part.split(sizes) for part in gradients]
    return list(zip(*parts, strict=True))


def _wrap(outputs: Tensors) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)
