"""The model of a round's time: by hand where that is possible, and the command that measures its constants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scaling.model import Communication, Costs, Machines, Replay, subtrees
from fedmbo_ray.federation.reduction import Joined, Part

COSTS = Costs(call=0.001, latency=0.002, byte=1e-8, network=1e9)
WORK = Communication(blocks=1, compute=0.01, shared=1000, stored=0, each=0.0, sums=1000, rows=0.0)


def test_one_actor_by_hand() -> None:
    """A call there and back, 1000 bytes each way, and a block."""
    seconds = Replay(Machines(1, 1), COSTS).communication(WORK)
    assert seconds == pytest.approx(0.001 + 2 * 0.002 + 2 * 1000 * (1e-8 + 1e-9) + 0.01)


def test_two_actors_of_two_nodes_by_hand() -> None:
    """The second is called after the first, and all else happens at the same time."""
    one = Replay(Machines(1, 1), COSTS).communication(WORK)
    two = Replay(Machines(2, 1), COSTS).communication(WORK._replace(blocks=2))
    assert two == pytest.approx(one + 0.001 + 1000 * 1e-8)
    shared = Replay(Machines(2, 1, cores=1), COSTS).communication(WORK._replace(blocks=2))
    assert shared == pytest.approx(two + 0.01)


def test_a_tree_is_for_many() -> None:
    def seconds(nodes: int, tree: bool) -> float:
        return Replay(Machines(nodes, 4, tree), COSTS).communication(WORK._replace(blocks=4 * nodes))

    assert seconds(100, tree=True) < seconds(100, tree=False) / 5
    assert seconds(1000, tree=True) < 2 * seconds(100, tree=True)


@given(st.integers(1, 70), st.data())
def test_parts_are_counted_as_they_are_joined(total: int, data) -> None:
    first = data.draw(st.integers(0, total - 1))
    last = data.draw(st.integers(first + 1, total))
    parts = Joined(total, (Part(number, 1, (), ((),)) for number in range(first, last))).parts
    assert subtrees(first, last, total) == len(parts)
