"""Data sets made from others: long tails, digits in groups, useless pixels."""

import numpy as np

from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.datasets import data_root, load_dataset
from fedmbo_ray.data.derived import noisy_digits, turned_digits
from fedmbo_ray.data.long_tail import thinned


def test_a_long_tail_keeps_test_rows_and_thins_the_others() -> None:
    data = load_dataset("digits", data_root())
    tail = thinned(data, 20, stream(0))
    counts = np.bincount(tail.train_targets)
    assert counts[0] == np.bincount(data.train_targets)[0]
    assert (np.diff(counts) <= 3).all()
    assert 15 < counts[0] / counts[-1] < 25
    assert tail.test_targets is data.test_targets
    assert thinned(data, 1, stream(0)) is data
    assert np.bincount(thinned(data, 1e6, stream(0)).train_targets)[-1] == 2


def test_turned_digits_have_two_groups() -> None:
    data, plain = turned_digits(), load_dataset("digits", data_root())
    assert 0.07 < data.groups.mean() < 0.13
    turned = data.groups == 1
    assert (data.train_inputs[turned] == plain.train_inputs[turned][:, :, ::-1, ::-1]).all()
    assert (data.train_inputs[~turned] == plain.train_inputs[~turned]).all()


def test_noisy_digits_have_useless_pixels_beside_them() -> None:
    data, plain = noisy_digits(copies=2), load_dataset("digits", data_root())
    real, *useless = np.split(data.train_inputs, 3, axis=3)
    assert (real == plain.train_inputs).all()
    for part in useless:
        assert (np.sort(part, axis=0) == np.sort(real, axis=0)).all()
        assert (part != real).mean() > 0.4
    assert (useless[0] != useless[1]).mean() > 0.4
    assert (data.test_targets == plain.test_targets).all()
