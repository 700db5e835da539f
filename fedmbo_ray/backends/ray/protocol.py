"""What the driver asks of a client actor, what comes back, and how several share one request."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, islice
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from ray.exceptions import ObjectLostError, RayActorError

from fedmbo_ray.backends.ray.messages import Arrays
from fedmbo_ray.federation.reduction import A, Array, Joined, Part

V = TypeVar("V")  # what is kept of a vector

VERSIONS_KEPT = 4
GONE = (RayActorError, ObjectLostError)  # what is raised where an actor, or its whole node, has died


class Request(NamedTuple):
    """Some blocks of a job. Its arrays travel beside it: new shared ones first, then ids, seeds and rows of each block.

    `kinds` says of each shared argument what it is: None, sent along; a version known to the actor, not sent;
    a negated version, sent along and to be kept under that number.
    """

    spec: bytes  # kernel, draw, summed, own, at
    kinds: tuple[int | None, ...]
    numbers: tuple[int, ...]  # of the blocks
    total: int  # blocks of the job
    rows: int  # how many arrays of rows each block has

    def without_versions(self) -> tuple["Request", Array]:
        """This request with kinds that say only which vectors are new, so that requests are equal; and the versions."""
        kinds = [kind and (1 if kind > 0 else -1) for kind in self.kinds]
        return self._replace(kinds=tuple(kinds)), np.array([abs(kind) for kind in self.kinds if kind], np.int64)

    def with_versions(self, versions: Array) -> "Request":
        known = iter(versions.tolist())
        return self._replace(kinds=tuple([kind and kind * next(known) for kind in self.kinds]))

    def new_versions(self) -> list[int]:
        return [-kind for kind in self.kinds if kind is not None and kind < 0]


class KeptVectors(Generic[V]):
    """The large vectors that were used last, by their version numbers: at least all of one job."""

    def __init__(self) -> None:
        self.kept: OrderedDict[int, V] = OrderedDict()
        self.most = VERSIONS_KEPT

    def make_room(self, kinds: Iterable[int | None]) -> None:
        """To be called before a job: as many vectors are kept as the job has, or more."""
        self.most = max(self.most, sum(kind is not None for kind in kinds))

    def add(self, version: int, value: V) -> None:
        self.kept[version] = value
        self.kept.move_to_end(version)
        while len(self.kept) > self.most:
            self.kept.popitem(last=False)

    def use(self, version: int) -> V:
        """A vector that is kept; the vectors that were used last are kept longest."""
        self.kept.move_to_end(version)
        return self.kept[version]


class SentVectors(KeptVectors[None]):
    """Which of the vectors that were sent to an actor it still has: both sides forget the same ones."""

    def kinds(self, versions: list[int | None]) -> tuple[int | None, ...]:
        """What a request says about its vectors; after it, the other side has all of them."""
        self.make_room(versions)
        return tuple([self._kind(version) for version in versions])

    def _kind(self, version: int | None) -> int | None:
        if version is None:
            return None
        if version in self.kept:
            self.use(version)
            return version
        self.add(version, None)
        return -version


class Reply(NamedTuple):
    """What each part consists of (its arrays are sent beside it), or, as text, what a kernel raised."""

    parts: tuple[tuple[int, int, int, int, int], ...]  # first, size, sums, blocks, arrays of rows of each block
    failure: str | None = None
    lost: tuple[int, ...] = ()  # members that have died


def packed(joined: Joined[A], lost: tuple[int, ...] = ()) -> tuple[Reply, list[A]]:
    parts: list[Part[A]] = list(joined.parts.values())
    shapes = [(part.first, part.size, len(part.sums), len(part.rows), len(part.rows[0])) for part in parts]
    arrays = [array for part in parts for array in chain(part.sums, *part.rows)]
    return Reply(tuple(shapes), None, lost), arrays


def unpacked(reply: Reply, arrays: Arrays) -> Iterator[Part[Array]]:
    rest = iter(arrays)
    for first, size, sums, blocks, rows in reply.parts:
        added = tuple(islice(rest, sums))
        yield Part(first, size, added, tuple(tuple(islice(rest, rows)) for _ in range(blocks)))


def shares(request: Request, blocks: Arrays, weights: list[int]) -> list[tuple[Request, Arrays]]:
    """The request cut into groups of neighbouring blocks, in proportion to the weights."""
    ends = [len(request.numbers) * so_far // sum(weights) for so_far in accumulate(weights)]
    width = 2 + request.rows
    return [
        (request._replace(numbers=request.numbers[start:end]), blocks[width * start : width * end])
        for start, end in zip([0, *ends], ends, strict=False)
    ]
