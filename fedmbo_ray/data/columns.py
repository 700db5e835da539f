"""Tables as inputs: columns of numbers and of words, and test rows of every client."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray.data.dataset import Labels, held_out

DataFrame = Any  # a pandas DataFrame; pandas is imported where a table is read, since that takes half a second
COMMON = 0.005  # the share of the rows from which a word has a column: scaling would blow rarer ones up
TEST = 0.2  # the fraction of the rows to test on


def encoded_columns(table: DataFrame) -> NDArray[np.float32]:
    """Columns of numbers as they are, columns of words as one column of zeros and ones for every common word."""
    columns: list[NDArray[np.float32]] = []
    for name in table.columns:
        values = table[name].to_numpy()
        if values.dtype.kind in "biuf":
            columns.append(values.astype(np.float32))
            continue
        words, numbers, counts = np.unique(values.astype(str), return_inverse=True, return_counts=True)
        common = np.flatnonzero(counts >= COMMON * len(values)) if len(words) > 2 else range(1, len(words))
        columns.extend((numbers == word).astype(np.float32) for word in common)
    return np.ascontiguousarray(np.stack(columns, axis=1))


def held_out_of_each(clients: Labels, test: float = TEST) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows to learn from and those to test on, a fixed part of every client's; each needs three rows or more."""
    order = np.argsort(clients, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(clients))[:-1])
    chosen = [(own[here], own[there]) for own in parts for here, there in (held_out(len(own), test),)]
    return np.sort(np.concatenate([a for a, _ in chosen])), np.sort(np.concatenate([b for _, b in chosen]))
