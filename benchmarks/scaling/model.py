"""A round's time on a cluster, by replaying what it sends and computes on the tree of actors that would be used.

A call costs whoever makes it `call` seconds, arrives `latency` later, and every byte takes `byte` seconds of those who
send and receive it, and 1/`network` seconds on the wire. An actor passes on what those below it are to do, computes its
own blocks, then joins the answers in turn.
"""

from itertools import accumulate
from typing import NamedTuple

from fedmbo_ray.backends.ray.hierarchy import members, weight


class Communication(NamedTuple):
    """One exchange with a cohort; bytes are those of the arrays that travel."""

    blocks: int
    compute: float  # seconds for a block
    shared: int  # bytes that every call carries
    stored: int  # bytes that are new in the object store: every node fetches them
    each: float  # bytes of a block's own: ids, seeds, rows
    sums: int  # bytes of one sum
    rows: float  # bytes that a block returns besides


class Costs(NamedTuple):
    """In seconds; measured where the model is used."""

    call: float  # of the processor of whoever makes a call and takes its answer
    latency: float  # one way
    byte: float  # to write a byte into a message and read it again
    network: float = 1.25e9  # bytes per second: 10 Gbit/s


class Machines(NamedTuple):
    nodes: int
    actors: int  # on each
    tree: bool = True  # or the driver calls every actor
    cores: int | None = None  # that all share, if they are not real machines

    @property
    def slowdown(self) -> float:
        """Of what actors compute at the same time."""
        return 1.0 if self.cores is None else max(1.0, self.nodes * self.actors / self.cores)

    def led(self) -> dict[int, list[int]]:
        nodes = [str(node) for node in range(self.nodes) for _ in range(self.actors)]
        return members(nodes) if self.tree else {}


class Replay:
    """Rounds on some machines; times are seconds since the round began."""

    def __init__(self, machines: Machines, costs: Costs) -> None:
        self.costs, self.led, self.slowdown = costs, machines.led(), machines.slowdown
        below = {each for rest in self.led.values() for each in rest}
        self.top = [number for number in range(machines.nodes * machines.actors) if number not in below]
        self.weights = {number: weight(number, self.led) for number in range(machines.nodes * machines.actors)}
        self.hops = max(1, (machines.nodes).bit_length())

    def round(self, communications: list[Communication]) -> float:
        return sum(self.communication(each) for each in communications)

    def through_driver(self, communications: list[Communication]) -> float:
        """Bytes that the driver sends and receives in a round."""
        return sum(self._through_driver(each) for each in communications)

    def _through_driver(self, what: Communication) -> float:
        """Arguments once for each call, vectors of the object store once, and of each part of an answer its size."""
        weights = [self.weights[member] for member in self.top]
        ends = [what.blocks * so_far // sum(weights) for so_far in accumulate(weights)]
        calls = [(start, end) for start, end in zip([0, *ends], ends, strict=False) if end > start]
        answers = sum(self._answer(what, *call) for call in calls)
        return what.stored + what.shared * len(calls) + what.each * what.blocks + answers

    def communication(self, what: Communication) -> float:
        fetched = what.stored * (self.costs.byte + self.hops / self.costs.network)  # node after node gets a copy
        return fetched + self._shared_out(what, self.top, 0, what.blocks, 0.0, own=False)

    def _shared_out(
        self, what: Communication, members: list[int], first: int, last: int, now: float, own: bool
    ) -> float:
        """When blocks `first` to `last` are done and joined by one who gets them `now`; `own`: it computes some."""
        weights = [1] * own + [self.weights[member] for member in members]
        total = sum(weights)
        ends = [first + (last - first) * so_far // total for so_far in accumulate(weights)]
        parts = list(zip([first, *ends], ends, strict=False))
        mine, others = (parts[0], parts[1:]) if own else ((first, first), parts)
        answers = []
        for member, (start, end) in zip(members, others, strict=True):
            if end > start:
                sent = what.shared + what.each * (end - start)
                now += self.costs.call + sent * self.costs.byte
                there = now + self.costs.latency + sent / self.costs.network
                done = self._shared_out(what, self.led.get(member, []), start, end, there, own=True)
                answers.append((done + self.costs.latency, self._answer(what, start, end)))
        now += (mine[1] - mine[0]) * what.compute * self.slowdown
        for arrived, size in sorted(answers):
            now = max(now, arrived) + size * (self.costs.byte + 1 / self.costs.network)
        return now

    def _answer(self, what: Communication, first: int, last: int) -> float:
        return what.sums * subtrees(first, last, what.blocks) + what.rows * (last - first)


def subtrees(first: int, last: int, total: int) -> int:
    """How many parts blocks `first` to `last` of `total` are joined to."""
    count = 0
    while first < last:
        size = 1
        while first % (2 * size) == 0 and (first + 2 * size <= last or last == total) and first + size < last:
            size *= 2
        first, count = first + size, count + 1
    return count
