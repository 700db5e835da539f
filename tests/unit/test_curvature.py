"""ℓ is measured on batches as large as the estimator's, and the meter counts them."""

from typing import Any

import pytest
from tasks import ALGORITHM, federation, tiny_config

from fedmbo_ray.core.rng import stream
from fedmbo_ray.methods.curvature import PowerIteration, unmeasured
from fedmbo_ray.runs.build import build_task

LOCAL = {"batch_size": 3, "terms": 1}


def price(algorithm: dict[str, Any], n: int = 6, m: int = 20) -> tuple[int, int]:
    """Communications and samples of round 0 that a measured ℓ costs, beyond those with a given one."""
    meters = []
    for smoothness in (algorithm.get("smoothness", "auto"), 1.0):
        fields = {**algorithm, "smoothness": smoothness}
        config = tiny_config(algorithm=fields, clients={"num_clients": m, "cohort_size": n})
        task = build_task(config)
        fed = federation(task, n)
        config.algorithm.round(fed.clients(stream(1)), config.algorithm.init(*task.problem.init(stream(0)), m))
        meters.append(fed.meter)
    measured, given = meters
    return measured.communications - given.communications, measured.samples - given.samples


def double_loop(estimator: str, **fields: Any) -> dict[str, Any]:
    return {**ALGORITHM, "smoothness": "auto", "hypergradient": {"name": estimator, **fields}}


@pytest.mark.parametrize("size", [2, 8, 100])
def test_of_the_double_loop(size: int) -> None:
    assert price(double_loop("phe_sum", terms=3, batch_size=size)) == (1, 6 * size)


def test_of_an_estimator_that_takes_all_data() -> None:
    """On the quadratic, all data of a client count as one sample."""
    assert price(double_loop("exact")) == (1, 6)


@pytest.mark.parametrize("name", ["aggitd", "lfednest", "local_bsgm", "adafbio"])
def test_of_methods_with_a_batch_size_of_their_own(name: str) -> None:
    assert price({"name": name, **LOCAL}, n=6, m=6) == (1, 18)


def test_of_draws_of_an_estimator() -> None:
    estimator = {"name": "phe_sum", "terms": 3, "batch_size": 5}
    assert price({"name": "hypergradient_draws", "hypergradient": estimator}) == (1, 30)


def test_a_size_of_its_own_wins() -> None:
    algorithm = double_loop("phe_sum", terms=3, batch_size=4)
    assert price({**algorithm, "smoothness": {"name": "auto", "batch_size": 7}}) == (1, 42)


def test_smaller_batches_have_the_larger_curvatures() -> None:
    task = build_task(tiny_config("hyper_representation"))
    x, y = task.problem.init(stream(0))
    found = []
    for size in (2, 64):
        clients = federation(task, 20, replace=False).clients(stream(3))
        found.append(float(PowerIteration(margin=1.0)(clients, x, y, unmeasured(y), size)))
    assert found[0] > found[1] > 0
