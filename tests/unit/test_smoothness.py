"""ℓ as the clients measure it."""

import pytest
import torch
from tasks import federation, tiny_task

from fedmbo_ray.core.rng import stream
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.curvature import PowerIteration, unmeasured
from fedmbo_ray.problems.quadratic import Quadratic


def in_round(k: int) -> Clients:
    return federation(tiny_task("quadratic"), 6).clients(stream(0, "round", k), k)


def test_auto_bounds_the_curvature_of_every_client_of_the_cohort() -> None:
    """Without noise a batch is the client's expectation; its Hessian's largest eigenvalue is found to 2 %."""
    quiet = Quadratic(hessian_noise=0.0).build(0, 20)
    clients = federation(quiet, 6).clients(stream(0, "round", 0))
    x, y = quiet.problem.init(stream(0, "init"))
    found = PowerIteration(margin=1.0, iterations=100)(clients, x, y, unmeasured(y), 64)
    cohort = federation(quiet, 6).clients(stream(0, "round", 0))
    cohort.rng.standard_normal(y.shape)
    hessians = quiet.problem.mean_lower.A + torch.from_numpy(quiet.data.lower_deviations(cohort.sample())[0])
    assert float(found) == pytest.approx(float(torch.linalg.eigvalsh(hessians).max()), rel=0.02)


def test_auto_measures_often_at_first_and_never_falls() -> None:
    task, rule = tiny_task("quadratic"), PowerIteration(every=6)
    x, y = task.problem.init(stream(0, "init"))
    asked, scale, scales = [], unmeasured(y), []
    for k in range(20):
        clients = in_round(k)
        scale = rule(clients, x, y, scale, 64)
        scales.append(float(scale))
        asked += [k] if clients.federation.meter.communications else []
    assert asked == [0, 1, 2, 4, 6, 8, 12, 16, 18]
    assert scales == sorted(scales)
    assert len(set(scales)) > 1


def test_auto_keeps_a_larger_one_and_raises_a_smaller_one() -> None:
    y = torch.zeros(4, dtype=torch.float64)
    for last, kept in (1e3, True), (1e-3, False):
        found = PowerIteration()(in_round(8), y, y, torch.tensor(last, dtype=torch.float64), 64)
        assert (float(found) == last) is kept
