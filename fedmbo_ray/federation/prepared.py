"""Batches of foreseen communications: drawn for several communications in one call, and kept until they are used.

Results do not depend on what is kept: it follows from the block and x, and is made again if it is not there.
"""

from collections import OrderedDict
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedmbo_ray.core.compat import writes
from fedmbo_ray.core.rng import Seeds
from fedmbo_ray.data.batches import ClientData, ClientIds
from fedmbo_ray.federation.draws import MOST_SAMPLES, Draws, draw_batches, parted, samples_asked
from fedmbo_ray.problems.base import Layered
from fedmbo_ray.problems.head_derivatives import FeatureCache


class Drawn(NamedTuple):
    """The batches of one block in several communications, with x applied to them."""

    batches: list[Any]
    problem: FeatureCache  # applies x to all batches together, when it is first asked
    x: Tensor
    written: int  # how many times x had been written to
    samples: int

    def is_at(self, x: Tensor) -> bool:
        return writes(self.x) == self.written and (x is self.x or torch.equal(x, self.x))


class Prepared:
    """The batches of foreseen communications, kept until the last of these has used them."""

    def __init__(self) -> None:
        self.kept: OrderedDict[tuple[Draws, bytes, bytes], Drawn] = OrderedDict()

    def of(
        self, data: ClientData, problem: Layered, draw: Draws, clients: ClientIds, seeds: Seeds, x: Tensor, at: int
    ) -> Drawn:
        """The batches of a block, kept or drawn now; `clients` and `seeds` have a row for each communication."""
        key = draw, clients.tobytes(), seeds.tobytes()
        found = self.kept.pop(key, None)
        if found is None or not found.is_at(x):
            found = drawn(data, problem, draw, clients, seeds, x)
        if at + 1 < len(clients):
            self.kept[key] = found
            while sum(each.samples for each in self.kept.values()) > MOST_SAMPLES:
                self.kept.popitem(last=False)
        return found


def drawn(data: ClientData, problem: Layered, draw: Draws, clients: ClientIds, seeds: Seeds, x: Tensor) -> Drawn:
    rows, width = clients.shape
    batches, wholes = parted(draw_batches(data, draw, clients.reshape(-1), seeds.reshape(-1), x.device), rows * [width])
    return Drawn(batches, FeatureCache(problem, wholes), x, writes(x), clients.size * samples_asked(draw))
