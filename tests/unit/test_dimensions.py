"""Sweep files: what a dimension is, which points a sweep has, and what is said about a bad one."""

import math

import numpy as np
import pytest
from scipy.stats import kstest

from fedmbo_ray.backends.ray.placement import placeable
from fedmbo_ray.config.overrides import DEFAULT, changed
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.io import read_yaml
from fedmbo_ray.core.rng import stream
from fedmbo_ray.sweeps.schema import SweepFields, SweepPlan, make_sweep, read_sweep
from fedmbo_ray.sweeps.space import dimension, label


def sweep(*words: str) -> SweepPlan:
    return make_sweep(changed(read_yaml(DEFAULT), list(words), SweepFields))


def test_a_grid_has_every_combination_in_the_order_of_the_file() -> None:
    points = sweep("algorithm.step_size={grid: [0.1, 0.2]}", "clients.cohort_size={grid: [5, 10, 20]}").points()
    assert points is not None
    assert {(point["algorithm.step_size"], point["clients.cohort_size"]) for point in points} == {
        (a, n) for a in (0.1, 0.2) for n in (5, 10, 20)
    }
    assert len(points) == 6


def test_draws_are_repeated_for_every_combination_and_depend_on_the_seed_alone() -> None:
    words = ("algorithm.step_size={loguniform: [0.01, 1]}", "clients.cohort_size={grid: [5, 10]}", "tune.samples=3")
    points = sweep(*words).points()
    assert points is not None
    assert [point["clients.cohort_size"] for point in points] == [5, 10] * 3
    assert len({point["algorithm.step_size"] for point in points}) == 6
    assert sweep(*words).points() == points
    assert sweep(*words, "seed=1").points() != points


def test_a_point_becomes_a_run_config_and_a_seed_its_own() -> None:
    whole = sweep(
        "algorithm.lower.step_size={grid: [0.1, 0.2]}", "algorithm.hypergradient.name={choice: [phe, ihgp]}", "seed=7"
    )
    config = whole.config({"algorithm.lower.step_size": 0.2, "algorithm.hypergradient.name": "ihgp"}, 2)
    assert config.seed == 9
    assert config.algorithm.lower.step_size.value == 0.2
    assert type(config.algorithm.hypergradient).__name__ == "IHGP"
    assert config.algorithm.hypergradient.terms == 5


@pytest.mark.parametrize(
    ("kind", "given", "law"),
    [
        ("uniform", [2, 5], lambda v: (v - 2) / 3),
        ("loguniform", [0.01, 1], lambda v: np.log(v / 0.01) / math.log(100)),
    ],
)
def test_draws_have_their_law(kind, given, law) -> None:
    rng, dim = stream(0, kind), dimension("a", kind, given)
    values = np.array([dim.draw(rng) for _ in range(4000)])
    assert kstest(law(values), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("kind", ["randint", "lograndint"])
def test_integers_are_below_the_upper_bound_and_reach_the_ends(kind) -> None:
    rng, dim = stream(0, kind), dimension("a", kind, [1, 5])
    assert {dim.draw(rng) for _ in range(300)} == {1, 2, 3, 4}
    assert dim.extremes() == (1, 4)


def test_quantized_draws_are_multiples() -> None:
    rng, dim = stream(0), dimension("a", "quniform", [0.0, 1.0, 0.25])
    assert {dim.draw(rng) for _ in range(200)} == {0.0, 0.25, 0.5, 0.75, 1.0}


def test_labels_are_as_short_as_can_be() -> None:
    assert label({"algorithm.step_size": 0.05, "clients.cohort_size": 10}) == "step_size=0.05 cohort_size=10"
    both = {"algorithm.step_size": 0.05123456, "algorithm.lower.step_size": 1.0}
    assert label(both) == "algorithm.step_size=0.05123 lower.step_size=1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algorithm.step_size={logunifrm: [0.01, 0.1]}"], "did you mean 'loguniform'"),
        (["algorithm.step_size={loguniform: [0, 0.1]}"], "`low > 0` must hold"),
        (["algorithm.step_size={uniform: [1, 0.1]}"], "`low < high` must hold"),
        (["algorithm.step_size={uniform: [1]}"], "must be [low, high]"),
        (["algorithm.step_size={grid: []}"], "must be a list of values"),
        (["algorithm.step_size={grid: [0.1, 0.1]}"], "each value once"),
        (["algorithm.step_size={grid: [0.1, -1]}"], "greater than 0, but got -1"),
        (["algorithm.step_size={quniform: [0.05, 0.95, 0.2]}"], "bounds must be multiples of the quantum"),
        (["algorithm.step_size={qloguniform: [0.01, 1, 0.1]}"], "bounds must be multiples of the quantum"),
        (["clients.cohort_size={randint: [1, 20.5]}"], "integer bounds"),
        (["clients.cohort_size={randint: [0, 20]}"], "greater than or equal to 1, but got 0"),
        (["tune.search=grid", "algorithm.step_size={uniform: [0.1, 0.2]}"], "search=grid needs lists"),
        (["tune.search=optuna", "algorithm.step_size={grid: [0.1]}"], "needs choice in place of grid"),
        (["tune.scheduler=ash"], "did you mean 'asha'"),
        (["tune.metrc=x"], "did you mean 'metric'"),
        (["tune=3"], "must be a mapping"),
        (["clients.backend=ray", "clients.cpus_per_actor=0"], "must ask for some CPU or GPU"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words, said) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep(*words)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sweep_can_be_read_back() -> None:
    whole = read_sweep(
        DEFAULT, ["algorithm.step_size={loguniform: [0.01, 0.1]}", "tune.scheduler={name: asha, grace: 5}"]
    )
    again = make_sweep(whole.plain())
    assert again == whole


def test_what_can_be_placed() -> None:
    nodes = [{"CPU": 2.0}, {"CPU": 4.0, "GPU": 2.0}]
    actor = {"CPU": 0.5, "GPU": 0.25}
    assert placeable([{"CPU": 1.0}], nodes)
    assert placeable([{"CPU": 1.0}, *[actor] * 8], nodes)
    assert not placeable([{"CPU": 1.0}, *[actor] * 9], nodes)
    assert not placeable([{"CPU": 5.0}], nodes)
    assert not placeable([{"CPU": 4.0}, {"GPU": 1.0, "CPU": 1.0}], nodes)
    assert placeable([{}, *[{"CPU": 1.0}] * 6], nodes)
    assert not placeable([{}, *[{"CPU": 1.0}] * 7], nodes)


def test_zips_go_together_and_grids_across_them() -> None:
    words = ("clients.cohort_size={zip: [2, 4]}", "rounds={zip: [100, 50]}", "algorithm.step_size={grid: [0.1, 0.2]}")
    points = sweep(*words).points()
    assert points is not None
    found = [(point["clients.cohort_size"], point["rounds"], point["algorithm.step_size"]) for point in points]
    assert sorted(found) == [(2, 100, 0.1), (2, 100, 0.2), (4, 50, 0.1), (4, 50, 0.2)]
    assert sweep(*words).rounds == 100


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (
            ["rounds={zip: [1, 2]}", "seed={zip: [1, 2, 3]}"],
            "the same number of values, but seed has 3, rounds has 2",
        ),
        (["rounds={zip: [1, 2]}", "tune.scheduler=pbt"], "so a zip is not allowed"),
        (["rounds={zip: [1, 2]}", "tune.search=optuna"], "needs choice in place of zip"),
        (["rounds={zip: 3}"], "must be a list of values"),
    ],
)
def test_what_is_wrong_with_a_zip_is_said(words: list[str], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        sweep(*words)


def test_a_scale_changes_the_file_and_words_change_both(tmp_path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "{problem: {name: quadratic}, algorithm: {name: d_soba}, rounds: {grid: [10, 20]}, "
        "scales: {small: {rounds: 5, tune.seeds: 2}, large: {clients.cohort_size: {grid: [1, 2]}}}}"
    )
    assert [point["rounds"] for point in read_sweep(file, []).points() or []] == [10, 20]
    small = read_sweep(file, ["tune.seeds=3"], "small")
    assert (small.dims, small.rounds, small.tune.seeds) == ([], 5, 3)
    assert len(read_sweep(file, [], "large").points() or []) == 4
    assert make_sweep(small.plain()) == small
    with pytest.raises(ConfigError, match="unknown scale 'smal'; did you mean 'small'"):
        read_sweep(file, [], "smal")
