"""Who takes part in a communication."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.rng import Seeds
from fedmbo_ray.data.batches import ClientIds


class Foreseen(NamedTuple):
    """Communications whose clients and seeds are known before the first of them; `at` is one of them."""

    clients: ClientIds  # a row for each communication
    seeds: Seeds
    at: int

    def among(self, count: int) -> tuple[ClientIds, Seeds, int | None]:
        """The group of up to `count` communications that this one is in, and its row there; None if it is alone."""
        if count == 1 or len(self.clients) == 1:
            return self.clients[self.at], self.seeds[self.at], None
        first = self.at - self.at % count
        group = slice(first, first + count)
        return self.clients[group], self.seeds[group], self.at - first


class Cohort:
    """The clients of a communication: one id for each slot; a client may be in several slots.

    A part of a cohort (`cohort[:k]`), or a cohort in another order (`cohort[order]`), knows its slots in the whole
    cohort. Two cohorts are different even if they have the same clients.
    """

    def __init__(self, ids: ClientIds) -> None:
        self.ids = ids
        self.whole, self.slots = self, np.arange(len(ids))
        self.foreseen: Foreseen | None = None

    def __getitem__(self, which: slice | NDArray[np.integer] | NDArray[np.bool_]) -> "Cohort":
        """Some of the slots, given by a slice, positions or a mask."""
        if self.foreseen is not None:
            raise RunFailed("a cohort of `clients.ahead` must be asked as a whole first, but a part of it was taken")
        part = Cohort(self.ids[which])
        part.whole, part.slots = self.whole, self.slots[which]
        return part

    def at(self, foreseen: Foreseen) -> "Cohort":
        """The same slots, for one foreseen communication."""
        part = self[:]
        part.foreseen = foreseen
        return part

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[np.int64]:
        return iter(self.ids)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> ClientIds:
        return np.array(self.ids, dtype) if copy else np.asarray(self.ids, dtype)

    def __repr__(self) -> str:
        return f"Cohort({self.ids})"
