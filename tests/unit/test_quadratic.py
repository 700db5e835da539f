"""The closed forms of the quadratic against autograd and against its own clients, one by one."""

import numpy as np
import pytest
import torch
from torch.func import grad

from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.problems import population
from fedmbo_ray.problems.quadratic import Quadratic

CPU = torch.device("cpu")


@pytest.mark.parametrize("nonconvexity", [0.0, 1.5])
def test_hypergradient_is_the_gradient_of_the_value(nonconvexity: float) -> None:
    problem = Quadratic(upper_dim=3, lower_dim=5, nonconvexity=nonconvexity).build(1, 10).problem
    x, _ = problem.init(stream(0))
    assert torch.allclose(grad(problem.value)(x), problem.hypergradient(x), rtol=1e-12)
    assert torch.allclose(
        grad(problem.lower, argnums=1)(x, problem.y_star(x), problem.mean_lower), torch.zeros(5).double(), atol=1e-12
    )


@pytest.mark.parametrize("num_clients", [1, 2, 7, 100])
def test_means_over_clients_are_exact(num_clients: int) -> None:
    problem = Quadratic(gradient_noise=0).build(2, num_clients).problem
    clients = np.arange(num_clients)
    for deviation in problem.population.lower_deviations(clients):
        assert np.abs(deviation.mean(0)).max() < 1e-14
    upper = problem.population.upper_batches(clients, draw_seeds(stream(0), num_clients), 1)
    for part, mean in zip(upper, problem.mean_upper, strict=True):
        assert torch.allclose(part.mean(0), mean, rtol=1e-12)


def test_every_sample_hessian_is_between_mu_and_ell() -> None:
    task = Quadratic().build(3, 1000)
    batch = task.data.draw(np.arange(1000), draw_seeds(stream(0), 1000), Draw("train", 1), CPU)
    eigenvalues = torch.linalg.eigvalsh(batch.A)
    assert eigenvalues.min() >= 0.3
    assert eigenvalues.max() <= 1.0


def test_sample_variance_is_what_the_formula_says() -> None:
    task = Quadratic(hessian_noise=0.2, jacobian_noise=0.3).build(4, 2)
    x, y = task.problem.init(stream(0))
    draws = 40_000
    batch = task.data.draw(np.zeros(draws, dtype=int), draw_seeds(stream(1), draws), Draw("train", 1), CPU)
    gradients = (batch.A @ y) - (batch.B @ task.problem.s(x)) - batch.c
    squares = (gradients - gradients.mean(0)).square().sum(1)
    assert abs(squares.mean() - task.problem.sample_variance(x, y)) < 4 * squares.std() / draws**0.5


def test_a_million_clients_cost_no_memory_and_stay_repeatable() -> None:
    few, many = Quadratic().build(0, 100), Quadratic().build(0, 1_000_000)
    seeds = draw_seeds(stream(0), 3)
    ids = np.array([0, 50, 99])
    for a, b in zip(*(task.data.draw(ids, seeds, Draw("train", 2), CPU) for task in (few, many)), strict=True):
        assert torch.equal(a, b)
    assert many.data.draw(np.array([999_999]), seeds[:1], Draw("train", 2), CPU).A.shape == (1, 4, 4)


def test_too_much_noise_for_the_hessian_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hessian_noise=0\.9"):
        construct(Quadratic, {"hessian_noise": 0.9})


def test_a_seed_of_its_own_fixes_the_clients_and_the_start() -> None:
    first, second = (Quadratic(seed=3).build(seed, 10).problem for seed in (0, 1))
    assert first == second
    assert torch.equal(first.init(stream(0, "a"))[0], second.init(stream(1, "b"))[0])
    assert first != Quadratic().build(0, 10).problem


def test_stored_clients_are_those_made_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    everyone, clients = Quadratic().build(0, 11).data, np.array([3, 10, 3, 0])
    stored = (*everyone.lower_deviations(clients), *everyone.upper_deviations(clients))
    monkeypatch.setattr(population, "MOST_STORED", 0)
    made = (*everyone.lower_deviations(clients), *everyone.upper_deviations(clients))
    assert all(np.array_equal(a, b) for a, b in zip(stored, made, strict=True))
