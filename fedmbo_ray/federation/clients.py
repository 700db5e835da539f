"""The interface between an algorithm and its clients: sample clients, send them a kernel, get back rows or a mean."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np
from torch import Tensor

from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.data.batches import ClientData, ClientIds
from fedmbo_ray.federation.arguments import RowTensors, as_tensor, job_of, unwrapped
from fedmbo_ray.federation.availability import AlwaysAvailable, Availability
from fedmbo_ray.federation.cohort import Cohort
from fedmbo_ray.federation.draws import Draws
from fedmbo_ray.federation.exchange import Exchange
from fedmbo_ray.federation.execution import Backend, Job
from fedmbo_ray.federation.meter import Meter
from fedmbo_ray.federation.relay import Leg, Relay, Route, Steps
from fedmbo_ray.federation.rounds import Round
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
        self.exchange = Exchange(federation, rng)
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

    def ahead(self, count: int) -> list[Cohort]:
        """Choose the clients of the next `count` communications before the first of them.

        The cohorts are those that `sample` would choose one after the other. If x stays the same for all of them, a
        backend draws the batches of several communications, and applies x to them, in one call.

        Returns:
            The cohorts, to be asked in this order. One that is asked again draws anew, as every cohort does.
        """
        return self.exchange.foreseen(self.sample, count)

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
            rule = "clients.knowing leaves floats uncounted, so the method's card must say what clients know already"
            raise RunFailed(f'{rule}: Card(..., assumes="..."), but it says nothing')
        for tensor in known:
            self.exchange.ledger.tell(cohort, tensor)
        return cohort

    def with_one_cohort(self, cohort: Cohort, shuffled: bool = False) -> "Clients":
        """The same clients, but `sample()` always returns this cohort, and `sample(k)` its first k slots.

        With `shuffled`, its order is random and new every time, so that a result can pass from any client to any other.
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
        _, rows = self.exchange.communicate(job_of(kernel, shared, draw, summed=False), cohort, each, own)
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
        sums, memory = self.exchange.communicate(job_of(kernel, shared, draw, summed=True), cohort, each, own)
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
        """Let columns pass from client to client, a new one each time, and average what their last clients upload.

        A column meets one client of the cohort, then as many others as it makes steps, then a last one. This takes
        2 + max(steps) communications, but a backend computes all steps of a block of columns in one call.

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
        exchange, route = self.exchange, Route(steps)
        exchange.meet(route, np.arange(len(steps)), 0, cohort, start, (x, y))
        for at in range(1, 1 + int(steps.max(initial=0))):
            if len(columns := route.due(at)):
                exchange.meet(route, columns, at, self.sample(len(columns)), step, (x, y), y.numel())
        last = route.there
        exchange.meet(route, last, 1 + steps[last], self.sample(len(last)), finish, (x, y), y.numel())
        shared = tuple(map(as_tensor, (x, y, *constants)))
        sums = exchange.carry(Job(Relay(start, step, finish, len(constants)), shared, (), summed=True), route)
        return cast("Tensor", unwrapped([total / len(route.there) for total in sums]))
