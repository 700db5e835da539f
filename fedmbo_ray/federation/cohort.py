"""Who takes part in a communication."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedmbo_ray.data.batches import ClientIds


class Cohort:
    """The clients of a communication: one id for each slot; a client may be in several slots.

    A part of a cohort (`cohort[:k]`), or a cohort in another order (`cohort[order]`), knows its slots in the whole
    cohort. Two cohorts are different even if they have the same clients.
    """

    def __init__(self, ids: ClientIds) -> None:
        self.ids = ids
        self.whole, self.slots = self, np.arange(len(ids))

    def __getitem__(self, which: slice | NDArray[np.integer] | NDArray[np.bool_]) -> "Cohort":
        """Some of the slots, given by a slice, positions or a mask."""
        part = Cohort(self.ids[which])
        part.whole, part.slots = self.whole, self.slots[which]
        return part

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[np.int64]:
        return iter(self.ids)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> ClientIds:
        return np.array(self.ids, dtype) if copy else np.asarray(self.ids, dtype)

    def __repr__(self) -> str:
        return f"Cohort({self.ids})"
