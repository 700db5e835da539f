"""The paper's MNIST experiment with the shipped config, stopped once it has shown what it must."""

import pytest
from checkout import ROOT

from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.runs.loop import run

pytestmark = [pytest.mark.mnist, pytest.mark.usefixtures("mnist")]


def last(*overrides: str) -> dict:
    *_, record = run(read_config(ROOT / "tune_configs" / "mnist.yaml", ["record.every=500", *overrides]))
    return record


def test_two_digits_per_client_reach_96_percent() -> None:
    record = last("rounds=700")
    print(f"2 digits per client: {record['test_accuracy']:.2%}")
    assert record["status"] == "finished"
    assert record["test_accuracy"] >= 0.96


def test_label_sorted_split_reaches_94_percent() -> None:
    record = last("data.partition=sorted_shards", "rounds=500")
    print(f"label-sorted: {record['test_accuracy']:.2%}")
    assert record["test_accuracy"] >= 0.94


def test_a_neumann_scale_below_the_curvature_diverges_with_a_status() -> None:
    record = last("algorithm.step_size=0.05", "algorithm.lower.step_size=0.2", "algorithm.smoothness=10")
    assert record["status"] == "diverged"
    assert record["round"] < 1000
