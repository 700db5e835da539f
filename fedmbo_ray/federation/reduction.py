"""What the blocks of a communication return, put together the same way wherever they were computed.

Sums are formed along a binary tree over the numbers of the blocks: neighbours first, then pairs of neighbours, and so
on. Its shape follows from how many blocks there are and from nothing else, so whoever holds neighbours may add them up
before passing anything on: fewer vectors travel, and the bits stay the same.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np


class Part(NamedTuple):
    """What `size` blocks from number `first` on return, fewer at the end. Tensors; arrays on their way."""

    first: int
    size: int  # a power of two that divides `first`
    sums: tuple[Any, ...]  # over all slots
    rows: tuple[tuple[Any, ...], ...]  # of each block, a row for every slot


def beside(left: Part, right: Part) -> Part:
    """Two neighbours as one."""
    sums = tuple([plus(a, b) for a, b in zip(left.sums, right.sums, strict=True)])
    return Part(left.first, 2 * left.size, sums, left.rows + right.rows)


def plus(a: Any, b: Any) -> Any:
    """The sum, an array even if it has no dimension."""
    return np.add(a, b, out=np.empty_like(a)) if isinstance(a, np.ndarray) else a + b


class Joined:
    """Parts of one communication, each with its neighbour as soon as both are there."""

    def __init__(self, total: int, parts: Iterable[Part] = ()) -> None:
        self.total = total  # blocks of the communication
        self.parts: dict[int, Part] = {}  # by the number of their first block
        for part in parts:
            self.add(part)

    def add(self, part: Part) -> None:
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

    def _is_whole(self, part: Part) -> bool:
        return part.first == 0 and part.size >= self.total

    @property
    def whole(self) -> Part | None:
        """Everything, once it is there."""
        part = self.parts.get(0)
        return part if part is not None and self._is_whole(part) else None
