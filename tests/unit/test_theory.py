"""What the paper proves, with its errata, as numbers on the quadratic. Tolerances are standard errors."""

import numpy as np
import pytest
import torch
from tasks import federation, log_slope

from fedmbo_ray.core.rng import stream
from fedmbo_ray.methods.hypergradients.phe import PHE
from fedmbo_ray.methods.hypergradients.phe_sum import PHESum
from fedmbo_ray.methods.lower.minibatch_sgd import MinibatchSGD
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.quadratic import Quadratic


def point(task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = task.problem.init(stream(0, "point"))
    return x, y + 0.3


def estimates(task: Task, estimator, n: int, repeats: int, ell: float = 1.0, **changes) -> torch.Tensor:
    clients = federation(task, n, **changes)
    x, y = point(task)
    smoothness = torch.tensor(ell, dtype=torch.float64)
    calls = (estimator.estimate(clients.clients(stream(1, n, r)), x, y, smoothness, {}) for r in range(repeats))
    return torch.stack([h for h, _ in calls])


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("estimator", [PHE, PHESum])
@pytest.mark.parametrize(("terms", "ell"), [(1, 1.0), (6, 1.0), (6, 1.7)])
def test_mean_is_the_truncated_neumann_hypergradient(estimator, terms: int, ell: float, replace: bool) -> None:
    task = Quadratic(nonconvexity=0.5).build(5, 30)
    h = estimates(task, estimator(terms=terms, batch_size=2), n=8, repeats=400, ell=ell, replace=replace)
    expected = task.problem.surrogate(*point(task), terms, ell)
    standard_error = h.std(0) / 400**0.5
    assert ((h.mean(0) - expected).abs() < 4 * standard_error).all()


@pytest.mark.parametrize("terms", [1, 2, 5, 10, 20])
def test_bias_bound_with_the_lipschitz_constant_of_f(terms: int) -> None:
    """Proposition 1 with ℓ_{f,0} as in its proof (the statement prints ℓ_{f,1}): ‖bias‖ ≤ ℓ_{f,0}·κ(1 − 1/κ)^N."""
    problem = Quadratic().build(5, 30).problem
    x, y = point(Quadratic().build(5, 30))
    kappa = problem.settings.smoothness / problem.settings.strong_convexity
    lipschitz = float((y - problem.mean_upper.t).norm())  # ‖∇_y f‖ at the point stands for ℓ_{f,0}
    bias = float((problem.surrogate(x, y, terms) - problem.surrogate(x, y)).norm())
    assert 0 < bias <= lipschitz * kappa * (1 - 1 / kappa) ** terms


@pytest.mark.slow
def test_variance_of_phe_falls_like_one_over_n() -> None:
    task, sizes = Quadratic().build(6, 100), [1, 8, 64]
    variances = [float(estimates(task, PHE(terms=4, batch_size=1), n, 1500).var(0).sum()) for n in sizes]
    print(f"PHE: variances {variances} at n = {sizes}, slope {log_slope(sizes, variances):.4f}")
    assert -1.05 <= log_slope(sizes, variances) <= -0.95


def test_the_sum_has_the_same_mean_and_less_variance() -> None:
    task = Quadratic().build(6, 100)
    random, full = (estimates(task, each(terms=8, batch_size=1), 4, 400).var(0).sum() for each in (PHE, PHESum))
    assert full < random / 3


@pytest.mark.parametrize("batch_size", [1, 16])
@pytest.mark.parametrize("replace", [True, False])
def test_inner_step_error_keeps_what_clients_differ_by(batch_size: int, replace: bool) -> None:
    """One step from y*: β²(σ_{g,1}²/S + σ_g²)/n, with σ_g²·(m−n)/(m−1) if nobody is drawn twice."""
    m, n, beta, repeats = 40, 5, 0.1, 4000
    task = Quadratic().build(7, m)
    x, _ = point(task)
    y_star = task.problem.y_star(x)
    solver = MinibatchSGD(steps=1, step_size=beta, batch_size=batch_size)
    clients = federation(task, n, replace=replace)
    steps = torch.stack([solver.solve(clients.clients(stream(2, r)), x, y_star, {})[0] for r in range(repeats)])
    errors = (steps - y_star).square().sum(1)
    spread = task.problem.client_variance(x, y_star) * (1 if replace else (m - n) / (m - 1))
    expected = beta**2 * (task.problem.sample_variance(x, y_star) / batch_size + spread) / n
    standard_error = float(errors.std()) / repeats**0.5
    print(f"S={batch_size} replace={replace}: {float(errors.mean()):.6f} for {expected:.6f} ± {standard_error:.6f}")
    assert abs(float(errors.mean()) - expected) < 4 * standard_error


def test_communications_of_phe_follow_the_deepest_column() -> None:
    """2 + E[max N_i] per estimate, E[max N_i] = Σ_{k<N} (1 − ((k+1)/N)^n)."""
    task, terms, n, repeats = Quadratic().build(8, 20), 5, 10, 400
    clients, (x, y), ell = federation(task, n), point(task), torch.tensor(1.0, dtype=torch.float64)
    counts = []
    for r in range(repeats):
        before = clients.meter.communications
        PHE(terms=terms, batch_size=1).estimate(clients.clients(stream(3, r)), x, y, ell, {})
        counts.append(clients.meter.communications - before)
    expected = 2 + sum(1 - ((k + 1) / terms) ** n for k in range(terms))
    assert abs(np.mean(counts) - expected) < 4 * np.std(counts) / repeats**0.5


def test_omitted_clients_bias_phe_towards_short_columns_and_resampled_ones_do_not() -> None:
    from fedmbo_ray.federation.availability import Unreliable

    task, terms = Quadratic().build(9, 30), 6
    expected = task.problem.surrogate(*point(task), terms)

    def error_in_standard_errors(dropped: str) -> float:
        unreliable = Unreliable(dropout=0.4, dropped=dropped)
        h = estimates(task, PHE(terms=terms, batch_size=1), 10, 1000, availability=unreliable)
        return float(((h.mean(0) - expected).abs() / (h.std(0) / 1000**0.5)).max())

    assert error_in_standard_errors("resample") < 4 < error_in_standard_errors("omit")
