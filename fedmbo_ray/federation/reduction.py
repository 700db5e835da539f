"""Combines the results of the blocks of a communication, in an order that does not depend on where they were computed.

Sums are formed along a binary tree over the numbers of the blocks: neighbours first, then pairs of neighbours, and so
on. Its shape depends only on the number of blocks, so any process that holds neighbours may add them up before it
passes them on: fewer vectors are sent, and the bits stay the same.
"""

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.generic]
A = TypeVar("A", Tensor, Array)  # what is computed with, or what travels


class Part(NamedTuple, Generic[A]):
    """The results of blocks `first` to `first + size − 1`, as far as these exist: tensors, or arrays on their way."""

    first: int
    size: int  # a power of two that divides `first`
    sums: tuple[A, ...]  # over all slots
    rows: tuple[tuple[A, ...], ...]  # of each block, a row for every slot


def beside(left: Part[A], right: Part[A]) -> Part[A]:
    """Two neighbours as one."""
    sums = tuple([plus(a, b) for a, b in zip(left.sums, right.sums, strict=True)])
    return Part(left.first, 2 * left.size, sums, left.rows + right.rows)


def plus(a: A, b: A) -> A:
    """The sum, an array even if it has no dimension."""
    return np.add(a, b, out=np.empty_like(a)) if isinstance(a, np.ndarray) else a + b


class Joined(Generic[A]):
    """Parts of one communication, each with its neighbour as soon as both are there."""

    def __init__(self, total: int, parts: Iterable[Part[A]] = ()) -> None:
        self.total = total  # blocks of the communication
        self.parts: dict[int, Part[A]] = {}  # by the number of their first block
        for part in parts:
            self.add(part)

    def add(self, part: Part[A]) -> None:
        while not self._is_whole(part):
            neighbour = part.first ^ part.size
            if neighbour >= self.total:  # at the end there is none
                part = part._replace(size=2 * part.size)
            elif neighbour in self.parts and self.parts[neighbour].size == part.size:
                other = self.parts.pop(neighbour)
                part = beside(part, other) if part.first < neighbour else beside(other, part)
            else:
                break
        self.parts[part.first] = part

    def _is_whole(self, part: Part[A]) -> bool:
        return part.first == 0 and part.size >= self.total

    @property
    def whole(self) -> Part[A] | None:
        """Everything, once it is there."""
        part = self.parts.get(0)
        return part if part is not None and self._is_whole(part) else None
