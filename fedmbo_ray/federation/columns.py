"""How a relay's columns are computed: all steps of a block of columns in one call."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmbo_ray.core.rng import Seeds
from fedmbo_ray.data.batches import ClientData, ClientIds
from fedmbo_ray.federation.draws import DRAWN_TOGETHER, cut, draw_batches, parted
from fedmbo_ray.federation.relay import Leg, Relay, Steps
from fedmbo_ray.problems.base import Problem, capabilities, is_layered
from fedmbo_ray.problems.head_derivatives import FeatureCache
from fedmbo_ray.problems.oracles import Gradient, Vectors, Y

Rows = NDArray[np.int64]  # numbers of columns


class RelayCall(NamedTuple):
    """Some columns of one run, and the clients that they meet."""

    shared: tuple[Tensor, ...]  # x and y, then the server's constants
    clients: ClientIds  # row l has the clients after l steps, column by column
    seeds: Seeds
    steps: Steps


def run_relays(
    problem: Problem, data: ClientData, relay: Relay, calls: list[RelayCall], device: torch.device
) -> list[Vectors]:
    """For each call, the sum over its columns of what their last clients upload.

    Several calls, also of several runs, give the same bits as each alone. They require a problem with `stacks_all`.
    """
    points: Points = (OwnPoints if capabilities(problem).stacks_all else OnePoint)(calls, device)
    way, columns = Way(calls), Columns()
    for at in ([0], *way.together()):
        leg = relay.step if at[0] else relay.start
        due = [way.due(each) for each in at]
        where = np.repeat(at, [len(each) for each in due]), np.concatenate(due)
        batches = draw_batches(data, leg.draw, way.clients[where], way.seeds[where], device)
        parts, wholes = parted(batches, [len(each) for each in due])
        looking = FeatureCache(problem, wholes) if is_layered(problem) and leg.oracle.wrt == Y else problem
        for rows, part in zip(due, parts, strict=True):
            columns.meet(leg, points, torch.from_numpy(rows).to(device), cast("Problem", looking), part)
    where = way.steps + 1, np.arange(len(way.steps))
    batches = draw_batches(data, relay.finish.draw, way.clients[where], way.seeds[where], device)
    return points.sums(relay.finish.oracle, problem, batches, columns.parts[-1:])


class Way:
    """The clients that the columns of all calls meet, side by side."""

    def __init__(self, calls: list[RelayCall]) -> None:
        self.steps = np.concatenate([call.steps for call in calls])
        self.most = int(self.steps.max())
        self.clients = np.concatenate([self._padded(call.clients) for call in calls], axis=1)
        self.seeds = np.concatenate([self._padded(call.seeds) for call in calls], axis=1)

    def _padded(self, rows: NDArray[Any]) -> NDArray[Any]:
        return np.pad(rows, ((0, 2 + self.most - len(rows)), (0, 0)))

    def due(self, at: int) -> Rows:
        """The columns that make at least `at` steps."""
        return np.flatnonzero(self.steps >= at)

    def together(self) -> Iterator[list[int]]:
        """The steps in groups, such that one call draws the batches of a group and applies x to them."""
        group, size = list[int](), 0
        for at in range(1, 1 + self.most):
            count = len(self.due(at))
            if group and size + count > DRAWN_TOGETHER:
                yield group
                group, size = [], 0
            group.append(at)
            size += count
        if group:
            yield group


class Columns:
    """The parts of every column; none before the columns have met their first clients."""

    def __init__(self) -> None:
        self.parts: Vectors = ()

    def meet(self, leg: Leg, points: "Points", rows: Tensor, problem: Problem, batches: Any) -> None:
        """Let some of the columns meet their next clients; at the first clients, all columns."""
        assert leg.update is not None
        before = tuple(part[rows] for part in self.parts)
        answers = points.answers(leg.oracle, problem, batches, rows, before[:1])
        after = leg.update(answers, *points.constants(rows), *before)
        new = after if isinstance(after, tuple) else (after,)
        if self.parts:
            new = tuple(part.index_copy(0, rows, each) for part, each in zip(self.parts, new, strict=True))
        self.parts = new


class Points(Protocol):
    """Where the columns are: their x and y, and the constants."""

    def constants(self, rows: Tensor) -> list[Tensor]: ...

    def answers(self, oracle: Gradient[Any], problem: Problem, batches: Any, rows: Tensor, sent: Vectors) -> Tensor:
        """What the clients of some columns upload."""
        ...

    def sums(self, oracle: Gradient[Any], problem: Problem, batches: Any, sent: Vectors) -> list[Vectors]:
        """What the clients of all columns upload, added up for each call."""
        ...


class OnePoint:
    """One call: all columns are at the same point."""

    def __init__(self, calls: list[RelayCall], device: torch.device) -> None:
        (call,) = calls
        x, y, *self.numbers = [part.to(device) for part in call.shared]
        self.point = (x, y)

    def constants(self, rows: Tensor) -> list[Tensor]:
        return self.numbers

    def answers(self, oracle: Gradient[Any], problem: Problem, batches: Any, rows: Tensor, sent: Vectors) -> Tensor:
        return cast("Tensor", oracle.each(problem, batches, self.point, sent))

    def sums(self, oracle: Gradient[Any], problem: Problem, batches: Any, sent: Vectors) -> list[Vectors]:
        sums = oracle.sum(problem, batches, self.point, sent)
        return [sums if isinstance(sums, tuple) else (sums,)]


class OwnPoints:
    """Several calls: each column is at the point of its call."""

    def __init__(self, calls: list[RelayCall], device: torch.device) -> None:
        self.sizes = [len(call.steps) for call in calls]
        owners = np.repeat(np.arange(len(calls)), self.sizes)
        x, y, *numbers = [
            torch.stack(parts)[owners].to(device) for parts in zip(*(c.shared for c in calls), strict=True)
        ]
        self.point, self.numbers = (x, y), [part.unsqueeze(1).to(y.dtype) for part in numbers]

    def constants(self, rows: Tensor) -> list[Tensor]:
        return [part[rows] for part in self.numbers]

    def answers(self, oracle: Gradient[Any], problem: Problem, batches: Any, rows: Tensor, sent: Vectors) -> Tensor:
        return oracle.rows(problem, batches, *(part[rows] for part in self.point), *sent)[0]

    def sums(self, oracle: Gradient[Any], problem: Problem, batches: Any, sent: Vectors) -> list[Vectors]:
        rows = oracle.rows(problem, batches, *self.point, *sent)
        return list(zip(*(cut(part, self.sizes, Tensor.sum) for part in rows), strict=True))
