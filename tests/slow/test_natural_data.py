"""Data sets whose rows belong to clients, really fetched, and learned on."""

from pathlib import Path

import numpy as np
import pytest
from checkout import ROOT

from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.core.errors import DownloadError
from fedmbo_ray.data.dataset import Dataset
from fedmbo_ray.data.datasets import ABOUT, data_root, load_dataset
from fedmbo_ray.data.downloads import problem_with
from fedmbo_ray.data.images import _FASHION, _fashion_from_debian
from fedmbo_ray.runs.loop import run

# Rows of the smallest client, and SHA-256 of all arrays.
CONTENTS = {
    "fars": (152, "33417e12c57f20d7706013b2e96217055ecd6905744061773d4ad19bfe846a8b"),
    "chem97": (8, "abe062872294560d81308826a491a80919f6d7e9e0415b4e388f35b4fa6ddf33"),
    "chem97_schools": (2, "cc7eb354f461435f94ca6685b4f8dddee4a3334ad9e511df258fa4f4cc4b7e4c"),
    "adult": (9, "c5e1e16bdab7c98e686fc4f79f3a25f66fb522d80d2c71a8b1f270871db80580"),
    "exercises": (119, "f7922c6a764ad0e43f10173426ca6fe89e1829d6f4463b56e96291bf4584447d"),
    "speeches": (732, "9330bd79d062a9608305cd8d1b1a860292877251c4407c52212a977ea419cc06"),
}


def had(name: str) -> Dataset:
    """The data set; skips where it can't be had."""
    try:
        return load_dataset(name, data_root())
    except DownloadError as error:
        pytest.skip(str(error))


def majority(data: Dataset) -> float:
    """How often the most frequent training label is right."""
    return float((data.test_targets == np.bincount(data.train_targets).argmax()).mean())


@pytest.mark.parametrize("name", CONTENTS)
def test_rows_clients_and_digest(name: str) -> None:
    data, about = had(name), ABOUT[name]
    smallest, digest = CONTENTS[name]
    assert (len(data.train_targets), len(data.test_targets)) == (about.train, about.test)
    assert (data.shape, data.num_classes, data.num_clients) == (about.shape, about.classes, about.clients)
    assert data.clients is not None
    assert np.bincount(data.clients).min() == smallest
    assert len(set(data.client_names)) == len(data.client_names) == about.clients
    assert data.digest == digest


@pytest.mark.parametrize(("name", "rounds", "above"), [("fars", 100, 0.3), ("adult", 100, 0.05)])
def test_a_short_run_on_a_table_ends_above_the_majority(name: str, rounds: int, above: float) -> None:
    assert accuracy(name, rounds) >= majority(had(name)) + above


@pytest.mark.parametrize(("name", "rounds", "above"), [("exercises", 200, 0.5), ("speeches", 300, 0.07)])
def test_a_short_run_on_series_and_words_ends_above_the_majority(name: str, rounds: int, above: float) -> None:
    assert accuracy(name, rounds) >= majority(had(name)) + above


def accuracy(name: str, rounds: int) -> float:
    had(name)
    *_, record = run(read_config(ROOT / "tune_configs" / f"{name}.yaml", [f"rounds={rounds}", "record.every=1000"]))
    assert record["status"] == "finished"
    return float(record["test_accuracy"])


@pytest.mark.parametrize("name", ["chem97", "chem97_schools"])
def test_marks_are_predicted_better_than_by_their_mean(name: str) -> None:
    data = had(name)
    words = ["problem={name: 'marks:ridge', width: 16}", f"data={{name: {name}, partition: natural}}", "rounds=200"]
    words += [f"clients={{num_clients: {data.num_clients}, cohort_size: 10}}", "record.every=1000"]
    *_, record = run(read_config(None, [*words, "algorithm.lower.step_size=0.02", "algorithm.step_size=0.01"]))
    assert record["test_r2"] >= 0.35


def test_the_groups_of_adult_are_the_sexes() -> None:
    data = had("adult")
    assert data.groups is not None
    assert data.test_groups is not None
    assert data.group_names == ("Female", "Male")
    assert (np.bincount(data.groups).tolist(), np.bincount(data.test_groups).tolist()) == (
        [10771, 21790],
        [5421, 10860],
    )


def test_debians_fashion_mnist_is_the_published_one(tmp_path: Path) -> None:
    try:
        _fashion_from_debian(tmp_path)
    except OSError as error:
        pytest.skip(str(error))
    assert problem_with(tmp_path, _FASHION) is None
