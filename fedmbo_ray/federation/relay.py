"""Columns that pass from client to client: which clients they meet, and what happens at each.

Columns don't depend on each other. So one call computes all steps of a block of columns, from its first clients to its
last (`federation.columns`). The protocol, which the meter counts, has a communication for every step.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedmbo_ray.core.rng import Seeds
from fedmbo_ray.data.batches import ClientIds
from fedmbo_ray.federation.cohort import Cohort
from fedmbo_ray.federation.draws import Draws
from fedmbo_ray.problems.oracles import Gradient, Tensors

Steps = NDArray[np.int64]  # of each column

# What the server computes from the clients' answers: new columns, from answers, constants and the columns so far.
# All but the constants, which are numbers, have one row for each column; rows must not be mixed.
Update = Callable[..., Tensors]


class Leg(NamedTuple):
    """One client on a column's way: what the client computes, and what the server makes of its answer.

    Args:
        oracle: what the client computes at the shared tensors; all clients but the first also get the column.
        draw: which samples it draws.
        update: computes the new columns from the answers, the constants and the columns so far. A column can have
            several parts: the first part is sent to the clients on the way, the last part to the last client.

    Example:
        >>> from fedmbo_ray import Draw, oracles
        >>> Leg(oracles.hessian_yy, Draw("train", 32), lambda Hp, l, p: p - Hp / l).draw.size
        32
    """

    oracle: Gradient[Any]
    draw: Draws
    update: Update | None = None  # None at the last client, where answers are averaged

    def floats_up(self, x: Tensor, y: Tensor) -> int:
        """The number of floats that a client uploads."""
        wrt, sizes = self.oracle.wrt, (x.numel(), y.numel(), y.numel())
        return sum([sizes[i] for i in wrt]) if isinstance(wrt, tuple) else sizes[wrt]


class Relay(NamedTuple):
    """The kernel of a job whose slots are columns; the last `constants` of its shared tensors stay with the server."""

    start: Leg
    step: Leg
    finish: Leg
    constants: int


class Route:
    """Which client each column meets after how many steps, and the client's seed."""

    def __init__(self, steps: Steps) -> None:
        shape = (2 + int(steps.max(initial=0)), len(steps))
        self.steps, self.clients, self.seeds = steps, np.zeros(shape, np.int64), np.zeros(shape, np.uint64)
        self.there = np.arange(len(steps))  # the columns that are not lost

    def due(self, at: int) -> NDArray[np.int64]:
        """The columns, except lost ones, that make at least `at` steps."""
        return self.there[self.steps[self.there] >= at]

    def meet(self, columns: NDArray[np.int64], at: Steps | int, cohort: Cohort, seeds: Seeds) -> None:
        """Let columns meet the clients of a cohort; columns for which there is no client are lost."""
        met, lost = columns[: len(cohort)], columns[len(cohort) :]
        rows = at[: len(met)] if isinstance(at, np.ndarray) else at
        self.clients[rows, met], self.seeds[rows, met] = cohort.ids, seeds
        self.there = np.setdiff1d(self.there, lost)

    def parts(self, count: int) -> Iterator[tuple[ClientIds, Seeds, Steps]]:
        """The columns in `count` parts, dealt like cards, longest first, so that all parts have about equal work."""
        order = self.there[np.argsort(-self.steps[self.there], kind="stable")]
        for first in range(count):
            columns = order[first::count]
            height = 2 + int(self.steps[columns[0]])
            yield self.clients[:height, columns], self.seeds[:height, columns], self.steps[columns]
