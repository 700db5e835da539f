"""The interface between an algorithm and its clients: sample clients, send them a kernel, get back rows or a mean.

`Clients` cuts the slots of a communication into blocks of a fixed width, draws their seeds, counts what
the protocol sends, and hands the blocks to a backend. Results come back in slot order, sums are formed along
a tree over the blocks, and the width never depends on the backend: all backends give the same bits.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.rng import Seeds, draw_seeds
from fedmbo_ray.data.batches import ClientData, ClientIds
from fedmbo_ray.federation.arguments import RowTensors, as_rows, as_tensor, job_of, remembered, unwrapped
from fedmbo_ray.federation.availability import AlwaysAvailable, Availability
from fedmbo_ray.federation.cohort import Cohort
from fedmbo_ray.federation.draws import Draws, samples_drawn
from fedmbo_ray.federation.execution import Backend, Block, Job
from fedmbo_ray.federation.meter import Meter
from fedmbo_ray.federation.relay import Leg, Relay, Route, Steps
from fedmbo_ray.federation.rounds import Round
from fedmbo_ray.federation.sent import Ledger
from fedmbo_ray.problems.oracles import Tensors

R = TypeVar("R", bound=Tensors)  # what a kernel returns, and also the call that sends it


@dataclass
class Federation:
    """m clients, of which n take part in a communication, computed by a backend."""

    backend: Backend
    data: ClientData  # of m clients
    cohort_size: int  # n
    rounds: int | None  # K; None if only a budget ends the run
    replace: bool = True
    block_size: int = 5
    seed: int = 0  # for fixed properties of clients, not for their draws
    availability: Availability = field(default_factory=AlwaysAvailable)
    assumes: str = ""  # what clients know already, from the method's card; if empty, everything sent is counted
    meter: Meter = field(default_factory=Meter)

    def clients(self, rng: np.random.Generator, round: int = 0) -> "Clients":
        """The clients for round `round`, which draws all its random numbers from `rng`."""
        return Clients(self, rng, round)


class Clients:
    """The clients during one round: what an algorithm calls to sample them and to let them compute.

    Example:
        >>> from fedmbo_ray import Draw, oracles, stream
        >>> from fedmbo_ray.testing.small import AROUND, small_config, start
        >>> federation, state = start(small_config(AROUND, problem={"name": "quadratic"}))
        >>> clients, x, y = federation.clients(stream(0)), state["x"], state["y"]
        >>> cohort = clients.sample()  # n = 6 of m = 20 clients
        >>> clients.map(oracles.grad_y_lower, cohort, x, y, draw=Draw("train", 4)).shape == (6, len(y))
        True
        >>> clients.mean(oracles.grad_y_lower, clients.everyone(), x, y, draw=Draw("train", 4)).shape == y.shape
        True
    """

    def __init__(self, federation: Federation, rng: np.random.Generator, round: int) -> None:
        self.federation, self.rng, self.round = federation, rng, round
        self.ledger = Ledger()
        self.all: Cohort | None = None
        self.held: Cohort | None = None
        self.shuffled = False  # whether `sample` shuffles the held cohort

    @property
    def num_clients(self) -> int:
        return self.federation.data.num_clients

    @property
    def cohort_size(self) -> int:
        return self.federation.cohort_size

    @property
    def rounds(self) -> int | None:
        return self.federation.rounds

    @property
    def now(self) -> Round:
        """This round, as the argument of step sizes."""
        return Round(self.round, self.rounds, self.cohort_size)

    def sample(self, size: int | None = None) -> Cohort:
        """Choose clients at random.

        Args:
            size: the number of slots; n if not given.

        Returns:
            A fresh cohort. If clients drop out, their slots are drawn again or missing (`clients.availability`).
        """
        if self.held is not None:
            held = self.held[self.rng.permutation(len(self.held))] if self.shuffled else self.held
            return held if size is None else held[:size]
        federation, size = self.federation, self.cohort_size if size is None else size
        return Cohort(federation.availability.cohort(self.rng, self._pick, size, federation.meter))

    def everyone(self) -> Cohort:
        """Choose all m clients, one slot each; those that drop out are asked again until they answer.

        Returns:
            The same cohort during the whole round.
        """
        federation, ids = self.federation, np.arange(self.num_clients)

        def missing(size: int, answered: ClientIds) -> ClientIds:
            return np.setdiff1d(ids, answered)

        if self.all is None:
            answering = federation.availability.cohort(self.rng, missing, len(ids), federation.meter, complete=True)
            self.all = Cohort(answering)
        return self.all

    def knowing(self, cohort: Cohort, *known: Tensor) -> Cohort:
        """Note that clients already know some shared tensors, which then are not counted when they are sent.

        Args:
            cohort: the clients that know them.
            known: the tensors, known from an earlier round or from another cohort.

        Returns:
            The same cohort.

        Raises:
            RunFailed: the method's card does not say what it `assumes`.
        """
        if not self.federation.assumes:
            raise RunFailed(
                "clients.knowing leaves floats uncounted, so the method's card must say what clients know already: "
                'Card(..., assumes="..."), but it says nothing'
            )
        for tensor in known:
            self.ledger.tell(cohort, tensor)
        return cohort

    def with_one_cohort(self, cohort: Cohort, shuffled: bool = False) -> "Clients":
        """The same clients, but `sample()` always returns this cohort, and `sample(k)` its first k slots.

        With `shuffled`, the cohort comes in a new random order every time, so that a result can pass from any client to
        any other.
        """
        clients = copy(self)
        clients.held, clients.shuffled = cohort, shuffled
        return clients

    def _pick(self, size: int, taken: ClientIds) -> ClientIds:
        if self.federation.replace:
            return self.rng.integers(self.num_clients, size=size)
        ids = self.rng.choice(self.num_clients, size=size + len(taken), replace=False)
        return ids[~np.isin(ids, taken)][:size]

    def map(
        self,
        kernel: Callable[..., R],
        cohort: Cohort | ClientIds,
        *shared: Tensor | float,
        each: RowTensors = (),
        own: RowTensors = (),
        draw: Draws,
    ) -> R:
        """Let every slot's client run a kernel, in one communication.

        Args:
            kernel: a function of the problem, a batch, and the tensors of `shared`, `each` and `own`.
            cohort: the clients, one for each slot.
            shared: what all slots get; a client that has got a tensor in this round does not get it again.
            each: tensors whose row i goes to slot i.
            own: the memory of all m clients, one row each. It is not sent: a kernel gets its client's row, and returns
                the new row after its uploads.
            draw: which samples a client draws, or a tuple for a tuple of batches.

        Returns:
            What the kernel returns, stacked in slot order; the whole new memory last.

        Raises:
            ValueError: the kernel writes to its arguments, or returns own rows of another shape (on Ray: RunFailed).
        """
        _, rows = self._communicate(job_of(kernel, shared, draw, summed=False), cohort, each, own)
        return cast("R", unwrapped(rows))

    def mean(
        self,
        kernel: Callable[..., R],
        cohort: Cohort | ClientIds,
        *shared: Tensor | float,
        each: RowTensors = (),
        own: RowTensors = (),
        draw: Draws,
    ) -> R:
        """Let every slot's client run a kernel, in one communication, and average what they upload.

        Args and Raises are those of `map`.

        Returns:
            The means over the slots of what the kernel returns; the whole new memory last.
        """
        sums, memory = self._communicate(job_of(kernel, shared, draw, summed=True), cohort, each, own)
        return cast("R", unwrapped([total / len(cohort) for total in sums] + memory))

    def relay(
        self,
        cohort: Cohort,
        steps: Steps,
        start: Leg,
        step: Leg,
        finish: Leg,
        x: Tensor,
        y: Tensor,
        constants: tuple[Tensor | float, ...] = (),
    ) -> Tensor:
        """Let columns pass from client to client, a fresh one each time, and average what their last clients upload.

        A column meets one client of the cohort, then as many others as it makes steps, then a last one. This takes
        2 + max(steps) communications; a backend computes the whole way of a block of columns in one call.

        Args:
            cohort: the first clients, one for each column.
            steps: the number of steps of each column.
            start: what happens at a column's first client.
            step: what happens at each client after it.
            finish: what happens at a column's last client.
            x: sent to every client.
            y: sent to every client.
            constants: numbers that the server needs to update columns; they are not sent.

        Returns:
            The mean over the columns of what their last clients upload. If clients that drop out are omitted
            (`clients.availability`), their columns are lost.
        """
        route = Route(steps)
        self._pass(route, np.arange(len(steps)), 0, cohort, start, (x, y))
        for at in range(1, 1 + int(steps.max(initial=0))):
            if len(columns := route.due(at)):
                self._pass(route, columns, at, self.sample(len(columns)), step, (x, y), y.numel())
        last = route.there
        self._pass(route, last, 1 + steps[last], self.sample(len(last)), finish, (x, y), y.numel())
        shared = tuple(map(as_tensor, (x, y, *constants)))
        job = Job(Relay(start, step, finish, len(constants)), shared, (), summed=True)
        parts = route.parts(len(self._cuts(len(route.there))))
        blocks = [Block(clients, seeds, (torch.from_numpy(steps),)) for clients, seeds, steps in parts]
        sums = self.federation.backend.run(job, blocks).sums
        return cast("Tensor", unwrapped([total / len(route.there) for total in sums]))

    def _pass(
        self,
        route: Route,
        columns: Steps,
        at: Steps | int,
        cohort: Cohort,
        leg: Leg,
        shared: tuple[Tensor, Tensor],
        column: int = 0,
    ) -> None:
        """One communication of a relay: columns of so many floats meet the clients of a cohort."""
        route.meet(columns, at, cohort, self._asked(cohort))
        floats_down = self._told(cohort, shared) + len(cohort) * column
        self._count(cohort, leg.draw, floats_down, len(cohort) * leg.floats_up(*shared))

    def _communicate(
        self, job: Job, cohort: Cohort | ClientIds, each: RowTensors, own: RowTensors
    ) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        """The sums over all slots of what clients upload (if summed); its rows (if not) and the new memory."""
        cohort = cohort if isinstance(cohort, Cohort) else Cohort(cohort)
        each, own = as_rows(each), as_rows(own)
        seeds, rows = self._asked(cohort), (*each, *(memory[cohort.ids] for memory in own))
        blocks = [
            Block(cohort.ids[cut], seeds[cut], tuple([part[cut] for part in rows])) for cut in self._cuts(len(cohort))
        ]
        sums, by_block = self.federation.backend.run(job._replace(own=len(own)), blocks)[2:]
        stacked = [torch.cat(parts) for parts in zip(*by_block, strict=True)]
        uploaded = len(stacked) - len(own)
        floats_up = len(cohort) * sum([out.numel() for out in sums]) + sum([out.numel() for out in stacked[:uploaded]])
        floats_down = self._told(cohort, job.shared) + sum([part.numel() for part in each])
        self._count(cohort, job.draw, floats_down, floats_up)
        kept = zip(own, stacked[uploaded:], strict=True)
        return sums, stacked[:uploaded] + [remembered(memory, cohort.ids, new) for memory, new in kept]

    def _asked(self, cohort: Cohort) -> Seeds:
        """The seeds of a cohort that is asked now."""
        federation, again = self.federation, self.ledger.ask(cohort)
        if again:  # the wait for the first answer was counted when the cohort was sampled
            federation.meter.waited += federation.availability.wait(self.rng, again)
        return draw_seeds(self.rng, len(cohort))

    def _told(self, cohort: Cohort, shared: tuple[Tensor, ...]) -> int:
        """How many floats are sent to a cohort so that all its clients know the shared tensors."""
        return sum([self.ledger.tell(cohort, part) * part.numel() for part in shared])

    def _count(self, cohort: Cohort, draw: Draws, floats_down: int, floats_up: int) -> None:
        federation = self.federation
        federation.meter.count(samples_drawn(federation.data, draw, cohort.ids), floats_down, floats_up)

    def _cuts(self, size: int) -> list[slice]:
        """Blocks of nearly equal size, at most `block_size` slots; a small cohort has as many blocks as one of n."""
        width = self.federation.block_size
        count = max(-(-size // width), min(size, -(-self.cohort_size // width)))
        return [slice(size * i // count, size * (i + 1) // count) for i in range(count)]
