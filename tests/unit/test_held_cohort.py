"""One cohort for a whole round: what it does to the mean of estimators that pass columns from client to client."""

import pytest
import torch
from tasks import federation

from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import stream
from fedmbo_ray.methods.algorithms import ALGORITHMS
from fedmbo_ray.methods.algorithms.double_loop import DoubleLoop
from fedmbo_ray.methods.hypergradients import HYPERGRADIENTS
from fedmbo_ray.problems.quadratic import Quadratic

M, TERMS, REPEATS = 4, 4, 800
TASK = Quadratic(heterogeneity=3.4, gradient_noise=0, hessian_noise=0, jacobian_noise=0).build(7, M)
RELAYS = ["phe", "phe_sum"]


def method(estimator: str, cohort: str) -> DoubleLoop:
    """A double loop that leaves y alone and takes a whole step along h."""
    return construct(
        DoubleLoop,
        {
            "lower": {"name": "minibatch_sgd", "steps": 1, "step_size": 1e-15, "batch_size": 1},
            "hypergradient": {"name": estimator, "terms": TERMS, "batch_size": 1},
            "step_size": 1,
            "smoothness": 1,
            "cohort": cohort,
        },
    )


def standard_errors(h: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> float:
    """By how many of them the mean of the draws is off, in the worst coordinate."""
    off = (h.mean(0) - TASK.problem.surrogate(x, y, TERMS)).abs()
    return float((off / (h.std(0) / len(h) ** 0.5)).max())


@pytest.mark.parametrize("estimator", RELAYS)
def test_with_all_clients_the_mean_is_the_truncated_neumann_hypergradient(estimator: str) -> None:
    fed, (x, y) = federation(TASK, 2), TASK.problem.init(stream(0))
    algorithm, found = method(estimator, "all"), []
    for k in range(REPEATS):
        state = algorithm.init(x, y, M)
        found.append(x - algorithm.round(fed.clients(stream(1, k)), state)["x"])
    assert standard_errors(torch.stack(found), x, y) < 4


@pytest.mark.parametrize("estimator", RELAYS)
def test_in_one_order_a_column_meets_the_same_client_again_and_the_mean_is_off(estimator: str) -> None:
    fed, (x, y) = federation(TASK, M), TASK.problem.init(stream(0))
    estimate = construct(HYPERGRADIENTS[estimator], {"terms": TERMS, "batch_size": 1}).estimate
    found = []
    for k in range(REPEATS // 4):
        clients = fed.clients(stream(1, k))
        held, ell = clients.with_one_cohort(clients.everyone()), torch.ones((), dtype=y.dtype)
        found.append(estimate(held, x, y, ell, {})[0])
    assert standard_errors(torch.stack(found), x, y) > 10


def test_every_client_takes_part_though_a_cohort_has_fewer_and_is_told_x_and_y_once() -> None:
    fed, (x, y) = federation(TASK, 2), TASK.problem.init(stream(0))
    clients = fed.clients(stream(1))
    held = clients.with_one_cohort(clients.everyone(), shuffled=True)
    orders = [tuple(held.sample()) for _ in range(20)]
    assert {tuple(sorted(order)) for order in orders} == {(0, 1, 2, 3)}
    assert len(set(orders)) > 5
    construct(HYPERGRADIENTS["phe_sum"], {"terms": TERMS, "batch_size": 1}).estimate(
        held, x, y, torch.ones((), dtype=y.dtype), {}
    )
    p, q = len(x), len(y)
    assert fed.meter.floats_down == M * (p + q + TERMS * q)


@pytest.mark.parametrize("estimator", RELAYS)
def test_a_cohort_fixed_for_a_round_is_refused_where_columns_are_passed_on(estimator: str) -> None:
    with pytest.raises(ConfigError, match=r"^cohort: with PHE\w* .* `cohort` must be fresh or all, but got 'fixed'$"):
        method(estimator, "fixed")
    assert method("ihgp", "fixed").cohort == "fixed"  # FedNest's published choice: biased, and documented there


def test_a_method_with_a_relay_refuses_it_too() -> None:
    with pytest.raises(ConfigError, match="must be fresh or all"):
        construct(ALGORITHMS["fedmbo"], {"cohort": "fixed"})
