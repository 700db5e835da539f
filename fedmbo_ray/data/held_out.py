"""Which rows are held out to test on."""

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import stream

TEST = 0.2  # the fraction of rows to test on, unless a config says otherwise
MOST_TEST = 10_000  # and then at most so many: an accuracy on them has a standard error of half a percent
KEPT = 2  # rows of every client and label that are never held out


def held_out(rows: int, test: float | None, *columns: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows to learn from and those to test on, the same in every run: the seed of a run does not matter.

    Args:
        rows: how many there are.
        test: the fraction to test on; None for a fifth of the rows, but at most 10 000.
        columns: clients and labels, of which two rows each stay to learn from.
    """
    if rows < 3:
        raise ConfigError(f"`rows >= 3` must hold, but there are {rows}")
    wanted = min(TEST * rows, MOST_TEST) if test is None else test * rows
    order = stream(0, "test rows").permutation(rows)
    free = np.ones(rows, dtype=bool)
    for column in columns:
        free &= rank(column[order]) >= KEPT
    cut = min(max(round(wanted), 1), rows - 2, int(free.sum()))
    if cut == 0:
        raise ConfigError(
            f"a row must be left to test on, but each client and each label of the {rows} rows needs two to learn from"
        )
    chosen = np.sort(order[free][:cut])
    return np.setdiff1d(np.arange(rows), chosen, assume_unique=True), chosen


def rank(column: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often the value of each row has occurred before it."""
    order = np.argsort(column, kind="stable")
    ordered = column[order]
    first = np.searchsorted(ordered, ordered)  # where its value begins
    ranks = np.empty(len(column), dtype=np.int64)
    ranks[order] = np.arange(len(column)) - first
    return ranks
