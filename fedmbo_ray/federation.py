"""The only thing an algorithm talks to: sample clients, send them a kernel, get back rows or a mean.

`Clients` cuts the slots of a communication into blocks of a fixed width, draws their seeds, counts what
the protocol sends, and hands the blocks to a backend. Results come back by slot, sums are formed in
block order, and the width never depends on the backend: the same bits wherever the blocks are computed.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fedmbo_ray.availability import AlwaysAvailable, Availability
from fedmbo_ray.data import ClientData, Draw
from fedmbo_ray.data import Clients as Cohort
from fedmbo_ray.oracles import Gradient, Tensors
from fedmbo_ray.rng import Seeds, draw_seeds, fold

Draws = Draw | tuple[Draw, ...]


class RunFailed(Exception):
    """A run that can't go on: a kernel raised, or processes keep dying. The message says what happened."""


class Job(NamedTuple):
    """What all blocks of one communication have in common."""

    kernel: Any  # (problem, batch, *shared, *each) -> what the client uploads
    shared: tuple[Any, ...]  # tensors; arrays on their way to an actor
    draw: Draws
    summed: bool  # whether a block returns the sum over its slots


class Block(NamedTuple):
    """Slots that one call computes."""

    clients: Cohort
    seeds: Seeds
    each: tuple[Any, ...]  # likewise


class Backend(Protocol):
    """Computes blocks somewhere; results in the order of `blocks`."""

    def run(self, job: Job, blocks: list[Block]) -> list[tuple[Tensor, ...]]: ...


@dataclass
class Meter:
    """What the federated protocol has cost so far; floats count everything a client receives or sends."""

    communications: int = 0
    samples: int = 0
    floats_up: int = 0
    floats_down: int = 0
    dropped: int = 0  # slots whose client did not answer
    waited: float = 0.0  # simulated seconds spent on the slowest client of each cohort

    def count(self, data: ClientData, job: Job, news: int, blocks: list[Block], results: list[Any]) -> None:
        """One communication, in which every slot was told `news` floats that it did not know."""
        slots = sum(len(block.clients) for block in blocks)
        draws = (job.draw,) if isinstance(job.draw, Draw) else job.draw
        self.communications += 1
        self.samples += sum(data.samples(block.clients, draw) for block in blocks for draw in draws)
        self.floats_down += slots * news
        self.floats_down += sum(arg.numel() for block in blocks for arg in block.each)
        for block, result in zip(blocks, results, strict=True):
            self.floats_up += sum(out.numel() for out in result) * (len(block.clients) if job.summed else 1)

    def state(self) -> dict[str, float]:
        return asdict(self)


@dataclass
class Federation:
    """m clients, of which n take part in a communication, computed by a backend."""

    backend: Backend
    data: ClientData  # of m clients
    cohort_size: int  # n
    rounds: int  # K
    replace: bool = True
    block_size: int = 5
    availability: Availability = field(default_factory=AlwaysAvailable)
    meter: Meter = field(default_factory=Meter)

    def clients(self, rng: np.random.Generator, round: int = 0) -> "Clients":
        """The clients as round `round` sees them: whatever it draws comes from `rng`."""
        return Clients(self, rng, round)


class Clients:
    """The federation during one round."""

    def __init__(self, federation: Federation, rng: np.random.Generator, round: int) -> None:
        self.federation, self.rng, self.round = federation, rng, round
        self.told: tuple[Cohort | None, list[Tensor]] = (None, [])

    @property
    def num_clients(self) -> int:
        return self.federation.data.num_clients

    @property
    def cohort_size(self) -> int:
        return self.federation.cohort_size

    @property
    def rounds(self) -> int:
        return self.federation.rounds

    def sample(self, size: int | None = None) -> Cohort:
        """A fresh cohort of `size` clients (n if not given): one id per slot.

        Where clients drop out, slots are filled again or missing, as the federation's availability says.
        """
        federation, size = self.federation, self.cohort_size if size is None else size
        return federation.availability.cohort(self.rng, self._pick, size, federation.meter)

    def everyone(self) -> Cohort:
        """All m clients, one slot each."""
        return np.arange(self.num_clients)

    def _pick(self, size: int, taken: Cohort) -> Cohort:
        if self.federation.replace:
            return self.rng.integers(self.num_clients, size=size)
        ids = self.rng.choice(self.num_clients, size=size + len(taken), replace=False)
        return ids[~np.isin(ids, taken)][:size]

    def map(self, kernel: Any, cohort: Cohort, *shared: Tensor | float, each: Any = (), draw: Draws) -> Any:
        """What each slot's client returns, stacked in slot order. Row i of each tensor in `each` goes to slot i."""
        results = self._communicate(Job(kernel, shared, draw, summed=False), cohort, each)
        return _unwrap([torch.cat(parts) for parts in zip(*results, strict=True)])

    def mean(self, kernel: Any, cohort: Cohort, *shared: Tensor | float, each: Any = (), draw: Draws) -> Any:
        """The mean over the slots of what their clients return; reduced where it is computed."""
        results = self._communicate(Job(kernel, shared, draw, summed=True), cohort, each)
        return _unwrap([_total(parts) / len(cohort) for parts in zip(*results, strict=True)])

    def _communicate(self, job: Job, cohort: Cohort, each: Any) -> list[tuple[Tensor, ...]]:
        each = (each,) if isinstance(each, Tensor) else tuple(each)
        job = job._replace(shared=tuple(map(as_tensor, job.shared)))
        seeds = draw_seeds(self.rng, len(cohort))
        width = self.federation.block_size
        cuts = [slice(start, start + width) for start in range(0, len(cohort), width)]
        blocks = [Block(cohort[cut], seeds[cut], tuple(rows[cut] for rows in each)) for cut in cuts]
        results = self.federation.backend.run(job, blocks)
        self.federation.meter.count(self.federation.data, job, self._news(cohort, job.shared), blocks, results)
        return results

    def _news(self, cohort: Cohort, shared: tuple[Tensor, ...]) -> int:
        """How many floats of `shared` the cohort was not told in the communication before."""
        last, known = self.told
        known = known if cohort is last else []
        news = [part for part in shared if not any(part is each for each in known)]
        self.told = (cohort, known + news)
        return sum(part.numel() for part in news)


def run_block(problem: Any, data: ClientData, job: Job, block: Block, device: torch.device) -> tuple[Tensor, ...]:
    """What a block's clients compute: their batches, then the kernel on all of them at once."""
    batches = draw_batches(data, job.draw, block, device)
    shared = tuple(arg.to(device) for arg in job.shared)
    each = tuple(rows.to(device) for rows in block.each)
    if isinstance(job.kernel, Gradient):
        method = job.kernel.sum if job.summed else job.kernel.each
        return _wrap(method(problem, batches, shared, each))
    axes = (0, *(None for _ in shared), *(0 for _ in each))
    outputs = _wrap(vmap(lambda batch, *args: job.kernel(problem, batch, *args), axes)(batches, *shared, *each))
    return tuple(out.sum(0) for out in outputs) if job.summed else outputs


def draw_batches(data: ClientData, draw: Draws, block: Block, device: torch.device) -> Any:
    """One batch per slot; for several draws a tuple of batches that are independent of each other."""
    if isinstance(draw, Draw):
        return data.draw(block.clients, block.seeds, draw, device)
    return tuple(data.draw(block.clients, fold(block.seeds, number), each, device) for number, each in enumerate(draw))


def as_tensor(argument: Tensor | float) -> Tensor:
    """A number as a scalar of full precision; the vectors that it is combined with keep their own."""
    return argument if isinstance(argument, Tensor) else torch.tensor(argument, dtype=torch.float64)


def _total(parts: tuple[Tensor, ...]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _wrap(outputs: Tensors) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _unwrap(outputs: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
