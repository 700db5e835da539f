"""Hypergradient estimators against their closed-form means and variances on the quadratic."""

import numpy as np
import pytest
import torch
from tasks import federation, log_slope

from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.methods.hypergradients.direct import Direct
from fedmbo_ray.methods.hypergradients.exact import Exact
from fedmbo_ray.methods.hypergradients.ihgp import IHGP
from fedmbo_ray.methods.hypergradients.ihgp_sum import IHGPSum
from fedmbo_ray.methods.hypergradients.linear_sgd import LinearSGD
from fedmbo_ray.methods.hypergradients.local_neumann import LocalNeumann
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.quadratic import Quadratic

ONE = torch.tensor(1.0, dtype=torch.float64)


def point(task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = task.problem.init(stream(0, "point"))
    return x, y + 0.3


def estimates(task: Task, estimator, n: int, repeats: int, cohort: str = "fresh") -> torch.Tensor:
    fed, (x, y) = federation(task, n, block_size=1024), point(task)
    found = []
    for repeat in range(repeats):
        clients = fed.clients(stream(1, n, repeat))
        clients = clients.with_one_cohort(clients.sample()) if cohort == "fixed" else clients
        found.append(estimator.estimate(clients, x, y, ONE, {})[0])
    return torch.stack(found)


@pytest.mark.parametrize("estimator", [IHGP(terms=6, batch_size=2), IHGPSum(terms=6, batch_size=2)], ids=repr)
def test_mean_is_the_truncated_neumann_hypergradient(estimator) -> None:
    task = Quadratic(nonconvexity=0.5).build(5, 30)
    h = estimates(task, estimator, n=8, repeats=500)
    expected = task.problem.surrogate(*point(task), 6)
    assert ((h.mean(0) - expected).abs() < 4 * h.std(0) / 500**0.5).all()


def test_without_the_implicit_term_the_mean_is_the_direct_gradient() -> None:
    task = Quadratic(nonconvexity=0.5).build(5, 30)
    x, y = point(task)
    h = estimates(task, Direct(batch_size=2), n=8, repeats=500)
    expected = task.problem.settings.upper_curvature * x - task.problem.mean_upper.u
    assert ((h.mean(0) - expected).abs() < 4 * h.std(0) / 500**0.5).all()
    assert (expected - task.problem.surrogate(x, y)).norm() > 0.1 * expected.norm()  # it is biased


def floor(task: Task, terms: int) -> float:
    """F = Var_{N'}(J̄ (N/ℓ)(I − H̄/ℓ)^{N'} ∇_y f), with ℓ = 1."""
    x, y = point(task)
    A = task.problem.mean_lower.A
    vectors, p = [], terms * (y - task.problem.mean_upper.t)
    for _ in range(terms):
        vectors.append(task.problem.jacobian(x) @ p)
        p = p - A @ p
    return float(torch.stack(vectors).var(0, correction=0).sum())


@pytest.mark.slow
def test_the_variance_of_ihgp_has_a_floor_and_that_of_its_sum_has_none() -> None:
    task, terms = Quadratic().build(6, 100), 8
    F = floor(task, terms)
    many = float(estimates(task, IHGP(terms=terms, batch_size=1), 256, 2000).var(0).sum())
    print(f"IHGP at n = 256: variance {many:.4f}, floor {F:.4f}")
    assert abs(many - F) < 0.1 * F
    sizes = [1, 8, 64]
    variances = [float(estimates(task, IHGPSum(terms=terms, batch_size=1), n, 300).var(0).sum()) for n in sizes]
    print(f"IHGP-sum: slope {log_slope(sizes, variances):.3f}")
    assert -1.1 < log_slope(sizes, variances) < -0.9


def test_a_fixed_cohort_is_biased_by_what_its_clients_differ_in() -> None:
    """With one client per cohort, E[H_c v] ≠ H̄ v: the mean of IHGP is off, with fresh cohorts it is not."""
    task = Quadratic(heterogeneity=3.4, gradient_noise=0, hessian_noise=0, jacobian_noise=0).build(7, 10)
    expected = task.problem.surrogate(*point(task), 4)

    def error(cohort: str) -> float:
        h = estimates(task, IHGP(terms=4, batch_size=1), 1, 800, cohort)
        return float(((h.mean(0) - expected).abs() / (h.std(0) / 800**0.5)).max())

    assert error("fresh") < 4 < error("fixed")


@pytest.mark.slow
@pytest.mark.parametrize("series", ["sum", "term"])
def test_local_estimates_have_the_bias_that_their_formula_says(series: str) -> None:
    """Mean: mean_i [∇_x f_i − J_i (1/ℓ)Σ_{j<N}(I − A_i/ℓ)^j ∇_y f_i], not the hypergradient, however large N is."""
    task, terms, m = Quadratic(heterogeneity=2.0).build(8, 20), 12, 20
    x, y = point(task)
    deviations = [torch.from_numpy(part) for part in task.data.lower_deviations(np.arange(m))]
    A, B, _ = (mean + part for mean, part in zip(task.problem.mean_lower, deviations, strict=True))
    upper = task.data.upper_batches(np.arange(m), draw_seeds(stream(0), m), None)
    power = (y - upper.t).unsqueeze(-1)
    v = torch.zeros_like(power)
    for _ in range(terms):
        v, power = v + power, power - A @ power
    rho = task.problem.settings.upper_curvature
    local = (rho * x - upper.u + (B.transpose(1, 2) @ v).squeeze(-1)).mean(0)
    h = estimates(task, LocalNeumann(terms=terms, batch_size=1, series=series), n=10, repeats=500)
    assert ((h.mean(0) - local).abs() < 4 * h.std(0) / 500**0.5).all()
    bias = (local - task.problem.surrogate(x, y)).norm()
    print(f"bias of local hypergradients: {bias:.4f} of {task.problem.surrogate(x, y).norm():.4f}")
    assert series == "term" or bias > 4 * (h.std(0) / 500**0.5).norm()


def test_sgd_on_the_linear_system_finds_its_solution_and_goes_on_from_it() -> None:
    task = Quadratic(gradient_noise=0, hessian_noise=0, jacobian_noise=0).build(9, 12)
    x, y = point(task)
    estimator, clients = LinearSGD(steps=100, step_size=0.9, batch_size=1), federation(task, 12, replace=False)
    h, kept = estimator.estimate(clients.clients(stream(0)), x, y, ONE, estimator.init(x, y, 12))
    assert torch.allclose(h, task.problem.surrogate(x, y), rtol=1e-8)
    one_step = LinearSGD(steps=1, step_size=0.9, batch_size=1)
    h, _ = one_step.estimate(clients.clients(stream(0)), x, y, ONE, kept)
    assert torch.allclose(h, task.problem.surrogate(x, y), rtol=1e-8)


def test_exact_is_exact() -> None:
    task = Quadratic(nonconvexity=1.0).build(9, 12)
    x, y = point(task)
    h, _ = Exact(tolerance=1e-12).estimate(federation(task, 3).clients(stream(0)), x, y, ONE, {})
    assert torch.allclose(h, task.problem.surrogate(x, y), rtol=1e-10)
