"""Partitions keep their promises for any labels and any number of clients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.dataset import Dataset
from fedmbo_ray.data.partitions import (
    IID,
    ByDigits,
    ClassMix,
    Dirichlet,
    Natural,
    Quantity,
    SortedShards,
    train_and_validation,
)

PARTITIONS = [
    IID(),
    ByDigits(digits=1),
    ByDigits(digits=3),
    SortedShards(),
    SortedShards(shards=2),
    Dirichlet(alpha=5.0),
    Quantity(alpha=0.3),
]


def rows_with(targets: np.ndarray, clients: np.ndarray | None = None) -> Dataset:
    """A data set of which only targets and owners matter."""
    nothing = np.zeros((len(targets), 1), dtype=np.float32)
    return Dataset("rows", nothing, targets, nothing[:1], targets[:1], clients)


def balanced(rows: int, kinds: int = 10) -> np.ndarray:
    return stream(0).permutation(np.arange(rows) % kinds)


@pytest.mark.parametrize("partition", PARTITIONS, ids=repr)
@given(num_clients=st.integers(10, 60), seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_every_row_has_one_owner(partition, num_clients: int, seed: int) -> None:
    labels = balanced(1800)
    parts = partition.split(rows_with(labels), num_clients, stream(seed))
    assert len(parts) == num_clients
    assert sorted(np.concatenate(parts)) == list(range(1800))
    again = partition.split(rows_with(labels), num_clients, stream(seed))
    assert all((a == b).all() for a, b in zip(parts, again, strict=True))


@given(digits=st.integers(1, 10), num_clients=st.integers(10, 80))
@settings(max_examples=40, deadline=None)
def test_by_digits_gives_each_client_exactly_so_many_labels(digits: int, num_clients: int) -> None:
    labels = balanced(4000)
    parts = ByDigits(digits=digits).split(rows_with(labels), num_clients, stream(1))
    assert all(len(np.unique(labels[part])) == digits for part in parts)
    owners = np.bincount(np.concatenate([np.unique(labels[part]) for part in parts]), minlength=10)
    assert owners.max() - owners.min() <= 1


@given(shards=st.integers(1, 3), num_clients=st.integers(1, 50))
@settings(max_examples=40, deadline=None)
def test_sorted_shards_are_equal_and_hold_few_labels(shards: int, num_clients: int) -> None:
    labels = balanced(1500)
    parts = SortedShards(shards=shards).split(rows_with(labels), num_clients, stream(1))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= shards
    per_shard = int(np.ceil(10 / (shards * num_clients))) + 1
    assert max(len(np.unique(labels[part])) for part in parts) <= shards * per_shard


def test_dirichlet_is_more_uneven_for_smaller_alpha() -> None:
    labels = balanced(5000)

    def unevenness(alpha: float) -> float:
        parts = Dirichlet(alpha=alpha).split(rows_with(labels), 20, stream(2))
        return float(np.mean([np.bincount(labels[part], minlength=10).max() / len(part) for part in parts]))

    assert unevenness(0.1) > unevenness(1.0) > unevenness(100.0)


@given(validation=st.floats(0.01, 0.99), sizes=st.lists(st.integers(2, 40), min_size=1, max_size=20))
@settings(deadline=None)
def test_validation_split_leaves_both_parts_something(validation: float, sizes: list[int]) -> None:
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    train, held_out = train_and_validation(rows, validation)
    assert (train.size >= 1).all()
    assert (held_out.size >= 1).all()
    for i, own in enumerate(rows):
        mine = np.r_[
            train.order[train.start[i] :][: train.size[i]], held_out.order[held_out.start[i] :][: held_out.size[i]]
        ]
        assert sorted(mine) == sorted(own)


@pytest.mark.parametrize(
    ("partition", "num_clients", "message"),
    [
        (ByDigits(digits=11), 5, "digits: `digits <= 10`"),
        (ByDigits(digits=10), 200, "label 0 has 100 rows for 200 clients"),
        (Dirichlet(alpha=0.001), 400, "the poorest got at most"),
    ],
)
def test_what_can_not_be_given_is_refused(partition, num_clients: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        partition.split(rows_with(balanced(1000)), num_clients, stream(0))


def test_too_few_rows_for_a_split_are_refused() -> None:
    with pytest.raises(ConfigError, match="the poorest client got 1"):
        train_and_validation([np.arange(2), np.array([2])], 0.5)


@pytest.mark.mnist
@pytest.mark.parametrize("num_clients", [50, 100, 500])
@pytest.mark.parametrize("partition", [ByDigits(digits=2), SortedShards(), Dirichlet(alpha=0.5), IID()], ids=repr)
def test_mnist_for_up_to_500_clients(mnist, partition, num_clients: int) -> None:
    from fedmbo_ray.data.datasets import data_root, load_dataset

    labels = load_dataset("mnist", data_root()).train_targets
    parts = partition.split(rows_with(labels), num_clients, stream(0))
    assert sum(len(part) for part in parts) == 60_000
    assert min(len(part) for part in parts) >= 2


def test_class_mix_gives_equal_sizes_and_each_row_once() -> None:
    labels = balanced(3000)
    parts = ClassMix(alpha=0.2).split(rows_with(labels), 30, stream(0))
    assert {len(part) for part in parts} == {100}
    everything = np.concatenate(parts)
    assert len(np.unique(everything)) == len(everything)


def test_class_mix_is_more_uneven_for_smaller_alpha() -> None:
    labels = balanced(3000)
    most = []
    for alpha in (0.1, 1.0, 1000.0):
        parts = ClassMix(alpha=alpha).split(rows_with(labels), 30, stream(0))
        most.append(np.mean([np.bincount(labels[part], minlength=10).max() / len(part) for part in parts]))
    assert most[0] > most[1] > most[2]
    assert most[2] < 0.25  # of ten labels; 0.1 for equal shares, and chance


def test_quantity_differs_in_size_and_not_in_labels() -> None:
    labels = balanced(20_000, 2)
    parts = Quantity(alpha=0.3).split(rows_with(labels), 20, stream(0))
    sizes = np.array([len(part) for part in parts])
    assert sizes.max() > 10 * sizes.min()
    for part in parts:
        ones = labels[part].sum()
        assert abs(ones - len(part) / 2) < 4 * np.sqrt(len(part) / 4) + 1


def test_natural_gives_each_client_its_own_rows() -> None:
    owners = stream(1).integers(7, size=200)
    parts = Natural().split(rows_with(balanced(200), owners), 7, stream(0))
    assert [set(owners[part]) for part in parts] == [{client} for client in range(7)]
    assert sorted(np.concatenate(parts)) == list(range(200))


@pytest.mark.parametrize(
    ("owners", "num_clients", "message"),
    [
        (None, 3, "belong to no clients; name their column, or use iid"),
        (np.arange(60) % 4, 3, "has 4 clients, but clients.num_clients is 3; set clients.num_clients=4"),
        (np.minimum(np.arange(60), 1), 2, "client '0' of rows has 1 left to train on"),
    ],
)
def test_what_is_not_natural_is_refused(owners, num_clients: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Natural().split(rows_with(balanced(60), owners), num_clients, stream(0))


@pytest.mark.parametrize("partition", [ByDigits(), SortedShards(), Dirichlet(), ClassMix()], ids=repr)
def test_partitions_by_label_refuse_numbers(partition) -> None:
    numbers = stream(0).standard_normal(100)
    with pytest.raises(ConfigError, match="needs labels, but the targets of rows are numbers; use iid"):
        partition.split(rows_with(numbers), 5, stream(0))
