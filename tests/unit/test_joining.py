"""Sums along a tree: the same bits, whoever adds up what and in whatever order it arrives."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedmbo_ray.backends.ray.hierarchy import members, weight
from fedmbo_ray.backends.ray.messages import Arrays
from fedmbo_ray.backends.ray.protocol import Request, packed, shares, unpacked
from fedmbo_ray.federation.reduction import Joined, Part, beside


def leaf(number: int) -> Part:
    rng = np.random.default_rng(number)
    return Part(number, 1, (rng.normal(size=3).astype(np.float32),), ((np.array([number]),),))


def by_halves(first: int, size: int, total: int) -> np.ndarray:
    """The tree, written down as a recursion."""
    if size == 1:
        return leaf(first).sums[0]
    left, middle = by_halves(first, size // 2, total), first + size // 2
    return left + by_halves(middle, size // 2, total) if middle < total else left


@given(st.integers(1, 40), st.randoms(use_true_random=False))
def test_the_order_of_arrival_and_who_joins_do_not_matter(total: int, random) -> None:
    numbers = list(range(total))
    cuts = sorted({0, total, *(random.randrange(total + 1) for _ in range(5))})
    held = [numbers[start:end] for start, end in itertools.pairwise(cuts)]
    random.shuffle(held)
    joined = Joined(total)
    for each in held:
        random.shuffle(each)
        theirs = Joined(total, map(leaf, each))
        for part in unpacked(*packed(theirs)):
            joined.add(part)
    assert joined.whole is not None
    size = 1 << (total - 1).bit_length()
    assert np.array_equal(joined.whole.sums[0], by_halves(0, size, total))
    assert [int(row[0][0]) for row in joined.whole.rows] == numbers


def test_a_number_stays_an_array() -> None:
    one, two = (Part(number, 1, (np.array(2.5),), ((),)) for number in range(2))
    (total,) = beside(one, two).sums
    assert isinstance(total, np.ndarray)
    assert total == 5.0


def test_neighbours_travel_as_one() -> None:
    assert sorted((part.first, part.size) for part in Joined(8, map(leaf, range(4))).parts.values()) == [(0, 4)]
    assert sorted((part.first, part.size) for part in Joined(7, map(leaf, range(3, 7))).parts.values()) == [
        (3, 1),
        (4, 4),
    ]
    assert Joined(8, map(leaf, range(7))).whole is None


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(2, 8))
def test_everyone_has_one_leader_and_nobody_many_to_lead(nodes: list[int], fan_out: int) -> None:
    led = members(list(map(str, nodes)), fan_out)
    below = [each for rest in led.values() for each in rest]
    assert len(below) == len(set(below))
    top = [number for number in range(len(nodes)) if number not in below]
    assert len(top) <= fan_out
    assert sum(weight(number, led) for number in top) == len(nodes)
    for leader, rest in led.items():
        assert [nodes[each] for each in rest].count(nodes[leader]) == nodes.count(nodes[leader]) - 1


def test_a_thousand_nodes_are_three_calls_deep() -> None:
    led = members([str(number) for number in range(1000)])

    def depth(number: int) -> int:
        return 1 + max((depth(each) for each in led[number]), default=0)

    assert max(map(depth, led)) == 3
    assert max(map(len, led.values())) == 2 * 9


def test_a_request_is_shared_by_weight() -> None:
    blocks: Arrays = [np.array([10 * block + i]) for block in range(7) for i in range(3)]
    request = Request(b"", (), tuple(range(4, 11)), 20, 1)
    made = shares(request, blocks, [1, 4, 2])
    assert [each.numbers for each, _ in made] == [(4,), (5, 6, 7, 8), (9, 10)]
    assert [int(array[0]) for _, arrays in made for array in arrays] == [int(array[0]) for array in blocks]
