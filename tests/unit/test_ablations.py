"""The table of ablations: which arm is better, by how much, and how surely."""

import numpy as np

from benchmarks.ablations import ABLATIONS, DIRECT, FROZEN, FULL, Ablation, Job, interval, read, rows_of, write
from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.config.shipped import find_config


def test_every_arm_is_a_config() -> None:
    for each in ABLATIONS:
        for changes in each.arms.values():
            read_config(find_config(each.config), list(changes))


def test_rows_compare_seed_by_seed() -> None:
    arms = {FULL: (), DIRECT: (), FROZEN: ()}
    values = {FULL: [1.0, 2.0, 3.0, 4.0], DIRECT: [2.0, 3.0, 4.0, 5.5], FROZEN: [1.0, 2.0, 3.0, 4.0]}
    results = {Job("one", arm, seed, ()): {"loss": values[arm][seed]} for arm in arms for seed in range(4)}
    full, direct, frozen = rows_of(results, [Ablation("one", {"loss": -1}, arms)])
    assert full[:3] == ["one", "loss", FULL]
    assert full[4:] == ["", ""]
    assert direct[4].startswith("1.125 ± ")
    assert direct[5] == f"{2 * 2**-4:.4f}"  # the smallest of a sign-flip test with four seeds, times two comparisons
    assert frozen[4:] == ["0.000 ± 0.000", "1.0000"]


def test_figures_are_read_as_they_were_written(tmp_path) -> None:
    known = {("one", FULL, 1): {"loss": 0.1, "accuracy": 1 / 3}, ("one", DIRECT, 2): {"loss": 2.0, "accuracy": 0.0}}
    write(tmp_path / "runs.csv", known)
    assert read(tmp_path / "runs.csv") == known


def test_intervals_are_student_s() -> None:
    assert interval(np.array([1.0, 2.0, 3.0])) == "2.000 ± 2.484"  # 4.303·1/√3
