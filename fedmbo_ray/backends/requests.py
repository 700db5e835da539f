"""What the driver asks of a client actor, what comes back, and how several share one request."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ray.exceptions import ObjectLostError, RayActorError

from fedmbo_ray.backends.messages import Arrays
from fedmbo_ray.joining import Joined, Part

GONE = (RayActorError, ObjectLostError)  # what is raised where an actor, or its whole node, has died


class Request(NamedTuple):
    """Some blocks of a job. Its arrays travel beside it: new shared ones first, then ids, seeds and rows of each block.

    `kinds` says of each shared argument what it is: None, sent along; a version known to the actor, not sent;
    a negated version, sent along and to be kept under that number.
    """

    spec: bytes  # kernel, draw, summed, own
    kinds: tuple[int | None, ...]
    numbers: tuple[int, ...]  # of the blocks
    total: int  # blocks of the job
    rows: int  # how many arrays of rows each block has


class Reply(NamedTuple):
    """Of every part what it is made of (its arrays travel beside it), or what a kernel raised, as text."""

    parts: tuple[tuple[int, int, int, int, int], ...]  # first, size, sums, blocks, arrays of rows of each block
    failure: str | None = None
    lost: tuple[int, ...] = ()  # actors that were to help, and have died


def packed(joined: Joined, lost: tuple[int, ...] = ()) -> tuple[Reply, Arrays]:
    parts = list(joined.parts.values())
    shapes = [(part.first, part.size, len(part.sums), len(part.rows), len(part.rows[0])) for part in parts]
    arrays = [array for part in parts for array in (*part.sums, *(array for row in part.rows for array in row))]
    return Reply(tuple(shapes), None, lost), arrays


def parts_of(reply: Reply, arrays: Arrays) -> Iterator[Part]:
    rest = iter(arrays)
    for first, size, sums, blocks, rows in reply.parts:
        added = tuple(islice(rest, sums))
        yield Part(first, size, added, tuple(tuple(islice(rest, rows)) for _ in range(blocks)))


def shares(request: Request, blocks: Arrays, weights: list[int]) -> list[tuple[Request, Arrays]]:
    """Neighbouring blocks for each, as many as its weight asks for."""
    ends = [len(request.numbers) * sum(weights[: i + 1]) // sum(weights) for i in range(len(weights))]
    width = 2 + request.rows
    return [
        (request._replace(numbers=request.numbers[start:end]), blocks[width * start : width * end])
        for start, end in zip([0, *ends], ends, strict=False)
    ]
