"""Lower solvers on noise-free quadratics, where every fixed point is known, and how they reduce to one another."""

import numpy as np
import pytest
import torch
from tasks import federation, tiny_task

from fedmbo_ray.lower.accelerated_sgd import AcceleratedSGD
from fedmbo_ray.lower.fedavg import FedAvg
from fedmbo_ray.lower.fedlin import FedLin
from fedmbo_ray.lower.fedsvrg import FedSVRG
from fedmbo_ray.lower.minibatch_sgd import MinibatchSGD
from fedmbo_ray.problems.quadratic import Quadratic, lower_deviations
from fedmbo_ray.registry import ConfigError, construct
from fedmbo_ray.rng import stream

QUIET = {"gradient_noise": 0, "hessian_noise": 0, "jacobian_noise": 0}


def everyone(task):
    """Full participation: what is left is the solver's own error."""
    return federation(task, task.data.num_clients, replace=False).clients(stream(0))


@pytest.mark.parametrize(
    "solver",
    [
        MinibatchSGD(steps=120, step_size=0.8, batch_size=1),
        FedSVRG(steps=80, local_steps=4, step_size=0.3, batch_size=1),
        FedLin(steps=80, local_steps=4, fewest_local_steps=1, step_size=0.8),
    ],
    ids=repr,
)
def test_heterogeneity_does_not_move_the_fixed_point(solver) -> None:
    task = Quadratic(**QUIET).build(0, 10)
    x, y = task.problem.init(stream(1))
    assert (solver.solve(everyone(task), x, y + 1) - task.problem.y_star(x)).norm() < 1e-10


def test_fedavg_stops_where_its_local_steps_balance() -> None:
    """y = mean_i [M_i^τ y + Σ_{j<τ} M_i^j β b_i] with M_i = I − βA_i, b_i = B_i x + c_i: not y*."""
    task, beta, tau = Quadratic(**QUIET).build(0, 10), 0.4, 5
    x, y = task.problem.init(stream(1))
    deviations = [torch.from_numpy(part) for part in lower_deviations(task.problem, np.arange(10))]
    A, B, c = (mean + part for mean, part in zip(task.problem.mean_lower, deviations, strict=True))
    M = torch.eye(4).double() - beta * A
    b = beta * (B @ x + c)
    powers = [torch.linalg.matrix_power(M, j) for j in range(tau + 1)]
    drift = sum((power @ b.unsqueeze(-1)).squeeze(-1) for power in powers[:tau]).mean(0)
    fixed = torch.linalg.solve(torch.eye(4).double() - powers[tau].mean(0), drift)
    solver = FedAvg(steps=60, local_steps=tau, step_size=beta, batch_size=1)
    found = solver.solve(everyone(task), x, y)
    assert (found - fixed).norm() < 1e-10
    assert (found - task.problem.y_star(x)).norm() > 1e-3


def test_fedavg_with_one_local_step_is_minibatch_sgd() -> None:
    """Up to rounding: one averages points, the other gradients."""
    task = tiny_task("hyper_representation")
    x, y = task.problem.init(stream(1))
    a = FedAvg(steps=3, local_steps=1, step_size=0.2, batch_size=4).solve(federation(task, 6).clients(stream(2)), x, y)
    b = MinibatchSGD(steps=3, step_size=0.2, batch_size=4).solve(federation(task, 6).clients(stream(2)), x, y)
    assert torch.allclose(a, b, rtol=1e-12, atol=1e-14)


def test_fedsvrg_with_one_local_step_is_a_step_along_the_anchor() -> None:
    """Up to the rounding of a mean of equal vectors; the minibatch cancels to the bit."""
    task = tiny_task("hyper_representation")
    x, y = task.problem.init(stream(1))
    clients = federation(task, 6).clients(stream(2))
    stepped = FedSVRG(steps=1, local_steps=1, step_size=0.2, batch_size=4).solve(clients, x, y)
    from fedmbo_ray.data import Draw
    from fedmbo_ray.oracles import grad_y_lower

    clients = federation(task, 6).clients(stream(2))
    anchor = clients.mean(grad_y_lower, clients.sample(), x, y, draw=Draw("train", None))
    assert torch.allclose(stepped, y - 0.2 * anchor, rtol=1e-14, atol=1e-15)


def test_fedlin_with_equal_steps_is_fedsvrg_with_full_gradients() -> None:
    """On noise-free clients; up to rounding, as β/τ is formed on different sides."""
    task = Quadratic(**QUIET).build(3, 10)
    x, y = task.problem.init(stream(1))
    a = FedLin(steps=2, local_steps=4, fewest_local_steps=4, step_size=0.8).solve(everyone(task), x, y + 1)
    b = FedSVRG(steps=2, local_steps=4, step_size=0.2, batch_size=1).solve(everyone(task), x, y + 1)
    assert torch.allclose(a, b, rtol=1e-13)


def test_acceleration_pays_when_curvatures_differ() -> None:
    settings = Quadratic(strong_convexity=0.001, lower_dim=10, heterogeneity=0.01, **QUIET)
    task = settings.build(4, 10)
    x, y = task.problem.init(stream(1))
    steps, start = 60, y + 1

    def gap(found: torch.Tensor) -> float:
        loss = task.problem.lower
        return float(loss(x, found, task.problem.mean_lower) - loss(x, task.problem.y_star(x), task.problem.mean_lower))

    accelerated = AcceleratedSGD(steps=steps, strong_convexity=0.0, damping=2.0, batch_size=1)
    plain = MinibatchSGD(steps=steps, step_size=1.0, batch_size=1)
    fast = gap(accelerated.solve(everyone(task), x, start))
    assert fast <= 4 * 2.0 * float((start - y).square().sum()) / (steps * (steps + 1))
    assert fast < gap(plain.solve(everyone(task), x, start)) / 2


def test_fedlin_refuses_an_empty_range() -> None:
    with pytest.raises(ConfigError, match="`fewest_local_steps <= local_steps` must hold, but got 5 and 4"):
        construct(FedLin, {"steps": 1, "local_steps": 4, "fewest_local_steps": 5, "step_size": 0.1})
