"""The only thing an algorithm talks to: sample clients, send them a kernel, get back rows or a mean.

`Clients` cuts the slots of a communication into blocks of a fixed width, draws their seeds, counts what
the protocol sends, and hands the blocks to a backend. Results come back by slot, sums are formed along a
tree over the blocks, and the width never depends on the backend: the same bits wherever they are computed.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.availability import AlwaysAvailable, Availability
from fedmbo_ray.blocks import Backend, Block, Draws, Job
from fedmbo_ray.data import ClientData, Draw
from fedmbo_ray.data import Clients as Cohort
from fedmbo_ray.joining import Part
from fedmbo_ray.rng import draw_seeds


class RunFailed(Exception):
    """A run that can't go on: a kernel raised, or processes keep dying. The message says what happened."""


@dataclass
class Meter:
    """What the federated protocol has cost so far; floats count everything a client receives or sends.

    Samples are those that clients draw: one that serves two gradients counts once, and so does one of a batch that a
    client's own random depth then has no use for. All local data count once for each local step on them.
    """

    communications: int = 0
    samples: int = 0
    floats_up: int = 0
    floats_down: int = 0
    dropped: int = 0  # slots whose client did not answer
    waited: float = 0.0  # simulated seconds spent on the slowest client of each cohort

    def count(self, data: ClientData, job: Job, cohort: Cohort, news: int, each: Any, result: Part) -> None:
        """One communication, in which every slot was told its row of `each`, and `news` floats that it did not know."""
        draws = job.draw if isinstance(job.draw, tuple) else (job.draw,)
        rows = result.rows[0]
        uploads = result.sums or [part[0] for part in rows[: len(rows) - job.own]]
        per_slot = sum([out.numel() for out in uploads])
        self.communications += 1
        self.samples += sum([data.samples(cohort, draw) for draw in draws if isinstance(draw, Draw)])
        self.floats_down += len(cohort) * news + sum([rows.numel() for rows in each])
        self.floats_up += len(cohort) * per_slot

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
    seed: int = 0  # of what clients are, rather than draw
    availability: Availability = field(default_factory=AlwaysAvailable)
    meter: Meter = field(default_factory=Meter)

    def clients(self, rng: np.random.Generator, round: int = 0) -> "Clients":
        """The clients as round `round` sees them: whatever it draws comes from `rng`."""
        return Clients(self, rng, round)


class Clients:
    """The federation during one round."""

    def __init__(self, federation: Federation, rng: np.random.Generator, round: int) -> None:
        self.federation, self.rng, self.round = federation, rng, round
        self.told: dict[int, tuple[Cohort, list[Tensor]]] = {}
        self.held: Cohort | None = None
        self.all: Cohort | None = None

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
        if self.held is not None:
            return self.held if size >= len(self.held) else self.held[:size]
        return federation.availability.cohort(self.rng, self._pick, size, federation.meter)

    def everyone(self) -> Cohort:
        """All m clients, one slot each, the same cohort all through the round.

        Those that drop out are asked again until they answer.
        """
        federation, ids = self.federation, np.arange(self.num_clients)

        def missing(size: int, answered: Cohort) -> Cohort:
            return np.setdiff1d(ids, answered)

        if self.all is None:
            self.all = federation.availability.cohort(self.rng, missing, len(ids), federation.meter, complete=True)
        return self.all

    def knowing(self, cohort: Cohort, *known: Tensor) -> Cohort:
        """The cohort, whose clients know some shared tensors from before: from an earlier round, or as others' part."""
        self.told[_key(cohort)] = (cohort, [*self._known(cohort), *known])
        return cohort

    def with_one_cohort(self, cohort: Cohort) -> "Clients":
        """The same clients with one cohort (or the first of it) for every communication."""
        clients = Clients(self.federation, self.rng, self.round)
        clients.told, clients.held = self.told, cohort
        return clients

    def _pick(self, size: int, taken: Cohort) -> Cohort:
        if self.federation.replace:
            return self.rng.integers(self.num_clients, size=size)
        ids = self.rng.choice(self.num_clients, size=size + len(taken), replace=False)
        return ids[~np.isin(ids, taken)][:size]

    def map(
        self, kernel: Any, cohort: Cohort, *shared: Tensor | float, each: Any = (), own: Any = (), draw: Draws
    ) -> Any:
        """What each slot's client returns, stacked in slot order. Row i of each tensor in `each` goes to slot i.

        Tensors in `own` are the memory of all m clients, one row each. Nothing of it is sent: a client's kernel
        gets its row, and returns what becomes of it after what it uploads; the new memory comes back last.
        """
        _, rows = self._communicate(Job(kernel, shared, draw, summed=False), cohort, each, own)
        return _unwrap(rows)

    def mean(
        self, kernel: Any, cohort: Cohort, *shared: Tensor | float, each: Any = (), own: Any = (), draw: Draws
    ) -> Any:
        """The mean over the slots of what clients upload, reduced where it is computed; `own` as in `map`."""
        sums, memory = self._communicate(Job(kernel, shared, draw, summed=True), cohort, each, own)
        return _unwrap([total / len(cohort) for total in sums] + memory)

    def _communicate(self, job: Job, cohort: Cohort, each: Any, own: Any) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        """Sums over all slots of what clients upload, if it is summed; its rows, if it is not, and the new memory."""
        each, own = _rows(each), _rows(own)
        job = job._replace(shared=tuple(map(as_tensor, job.shared)), own=len(own))
        if _key(cohort) in self.told:  # asked again; when it was sampled, its answer was waited for
            self.federation.meter.waited += self.federation.availability.wait(self.rng, len(cohort))
        seeds = draw_seeds(self.rng, len(cohort))
        rows = (*each, *(memory[cohort] for memory in own))
        blocks = [
            Block(cohort[cut], seeds[cut], tuple([part[cut] for part in rows])) for cut in self._cuts(len(cohort))
        ]
        result = self.federation.backend.run(job, blocks)
        self.federation.meter.count(self.federation.data, job, cohort, self._news(cohort, job.shared), each, result)
        stacked = [torch.cat(parts) for parts in zip(*result.rows, strict=True)]
        uploaded = len(stacked) - len(own)
        kept = zip(own, stacked[uploaded:], strict=True)
        return result.sums, stacked[:uploaded] + [remembered(memory, cohort, new) for memory, new in kept]

    def _cuts(self, size: int) -> list[slice]:
        """Blocks as equal as can be, of `block_size` slots at most; a smaller cohort has as many as one of n."""
        width = self.federation.block_size
        count = max(-(-size // width), min(size, -(-self.cohort_size // width)))
        return [slice(size * i // count, size * (i + 1) // count) for i in range(count)]

    def _news(self, cohort: Cohort, shared: tuple[Tensor, ...]) -> int:
        """How many floats of `shared` the cohort was not told before in this round."""
        known = self._known(cohort)
        news = [part for part in shared if not any(part is each for each in known)]
        self.told[_key(cohort)] = (cohort, known + news)
        return sum(part.numel() for part in news)

    def _known(self, cohort: Cohort) -> list[Tensor]:
        return self.told[_key(cohort)][1] if _key(cohort) in self.told else []


def _key(cohort: Cohort) -> int:
    """The identity of a cohort, which its first few clients share; two cohorts differ, even with the same clients."""
    return id(cohort if cohort.base is None else cohort.base)


def remembered(memory: Tensor, cohort: Cohort, rows: Tensor) -> Tensor:
    """The clients' memory with the rows of a cohort replaced; a client in two slots keeps the last one's."""
    clients, last = np.unique(cohort[::-1], return_index=True)
    memory = memory.clone()
    memory[torch.from_numpy(clients)] = rows[torch.from_numpy(len(cohort) - 1 - last)]
    return memory


def as_tensor(argument: Tensor | float) -> Tensor:
    """A number as a scalar of full precision; the vectors that it is combined with keep their own."""
    return argument if isinstance(argument, Tensor) else torch.tensor(argument, dtype=torch.float64)


def _rows(rows: Any) -> tuple[Tensor, ...]:
    return (rows,) if isinstance(rows, Tensor) else tuple(rows)


def _unwrap(outputs: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
