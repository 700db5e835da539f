"""What the clients of a block draw: a batch for every slot, stacked."""

from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from fedmbo_ray.core.rng import Seeds, fold
from fedmbo_ray.data.batches import ClientData, ClientIds, Draw, Integers, Trait
from fedmbo_ray.problems.head_derivatives import Wholes

DRAWN_TOGETHER = 25  # at most so many slots in one call, unless a single communication has more
MOST_SAMPLES = 12_800  # at most so many are drawn before they are needed: 200 slots with 64 samples each


@dataclass(frozen=True)
class PartOfTest:
    """A part of the test data. They belong to no client; the number of the part stands in the place of a client."""


Draws = Draw | PartOfTest | tuple[Draw | Integers | Trait, ...]


def draw_batches(data: ClientData, draw: Draws, clients: ClientIds, seeds: Seeds, device: torch.device) -> Any:
    """One batch per slot; for several draws, a tuple of batches that are independent of each other.

    Each draw has its own seeds: its row of `seeds` or, if there is one row for all draws, seeds made from this row.
    """
    assert not isinstance(draw, PartOfTest)
    if isinstance(draw, Draw):
        return data.draw(clients, seeds, draw, device)
    parts = []
    for number, each in enumerate(draw):
        own = seeds[number] if seeds.ndim == 2 else fold(seeds, number)
        drawn = data.draw(clients, own, each, device) if isinstance(each, Draw) else each.draw(clients, own, device)
        parts.append(drawn)
    return tuple(parts)


def drawn_together(draw: Draws, slots: int, width: int) -> int:
    """For how many communications, of `slots` slots in blocks of `width`, one call may draw the batches.

    Batches are kept until the last of these communications, so all of them together must not take much memory.
    """
    return max(1, min(DRAWN_TOGETHER // max(1, width), MOST_SAMPLES // max(1, slots * samples_asked(draw))))


def samples_asked(draw: Draws) -> int:
    """How many samples a slot draws; all samples of a client, whose number differs, count as `MOST_SAMPLES`."""
    return sum([each.size * each.height if each.size else MOST_SAMPLES for each in _draws_of(draw)])


def _draws_of(draw: Draws) -> list[Draw]:
    return [each for each in (draw if isinstance(draw, tuple) else (draw,)) if isinstance(each, Draw)]


def samples_drawn(data: ClientData, draw: Draws, clients: ClientIds) -> int:
    """How many samples these clients use for a draw."""
    return sum([data.samples(clients, each) for each in _draws_of(draw)])


def parted(batches: Any, sizes: list[int]) -> tuple[list[Any], Wholes]:
    """The batches cut into groups of slots of these sizes; and for each part, the whole that it comes from."""
    if isinstance(batches, Tensor):
        return list(batches.split(sizes)), {}
    if type(batches) is tuple:
        found = [parted(part, sizes) for part in batches]
        return list(zip(*(parts for parts, _ in found), strict=True)), dict(ChainMap(*(wholes for _, wholes in found)))
    parts = [type(batches)(*fields) for fields in zip(*(field.split(sizes) for field in batches), strict=True)]
    places = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    return parts, {id(part): (batches, place) for part, place in zip(parts, places, strict=True)}


def batch_of_each(batches: Any, sizes: list[int]) -> Any:
    """Each group of slots as a single slot with all their samples; a tuple of batches is treated part by part."""
    if type(batches) is tuple:
        return tuple(batch_of_each(part, sizes) for part in batches)
    return type(batches)(*(torch.stack(cut(field, sizes, Tensor.mean)) for field in batches))


def cut(rows: Tensor, sizes: list[int], reduce: Callable[[Tensor, int], Tensor]) -> list[Tensor]:
    """Rows in groups of the given sizes, each reduced to one."""
    if len(set(sizes)) == 1:
        return list(reduce(rows.unflatten(0, (len(sizes), sizes[0])), 1))
    return [reduce(part, 0) for part in rows.split(sizes)]
