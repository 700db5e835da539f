"""Lower solvers on noise-free quadratics, where every fixed point is known, and how they reduce to one another."""

import numpy as np
import pytest
import torch
from tasks import federation, tiny_task

from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.methods.base import kept_at_first
from fedmbo_ray.methods.lower.accelerated_sgd import AcceleratedSGD
from fedmbo_ray.methods.lower.fedavg import FedAvg
from fedmbo_ray.methods.lower.fedlin import FedLin
from fedmbo_ray.methods.lower.fedsvrg import FedSVRG
from fedmbo_ray.methods.lower.minibatch_sgd import MinibatchSGD
from fedmbo_ray.methods.lower.proxskip import ProxSkip
from fedmbo_ray.methods.lower.scaffold import Scaffold
from fedmbo_ray.problems.oracles import grad_y_lower
from fedmbo_ray.problems.quadratic import Quadratic

QUIET = {"gradient_noise": 0, "hessian_noise": 0, "jacobian_noise": 0}


def everyone(task):
    """Full participation: what is left is the solver's own error."""
    return federation(task, task.data.num_clients, replace=False).clients(stream(0))


@pytest.mark.parametrize(
    "solver",
    [
        MinibatchSGD(steps=120, step_size=0.8, batch_size=1),
        FedSVRG(steps=80, local_steps=4, step_size=0.3, batch_size=1),
        FedLin(steps=80, local_steps={"fewest": 1, "most": 4}, step_size=0.8),
        Scaffold(steps=150, local_steps=4, step_size=0.2, batch_size=1),
        ProxSkip(steps=500, probability=0.3, step_size=0.5, batch_size=1),
    ],
    ids=repr,
)
def test_heterogeneity_does_not_move_the_fixed_point(solver) -> None:
    task = Quadratic(**QUIET).build(0, 10)
    x, y = task.problem.init(stream(1))
    found, _ = solved(solver, everyone(task), x, y + 1)
    assert (found - task.problem.y_star(x)).norm() < 1e-10


def solved(solver, clients, x, y, kept=None):
    """y and what is kept after one call, which starts with `kept` or anew."""
    return solver.solve(clients, x, y, kept_at_first(solver, x, y, clients.num_clients) if kept is None else kept)


def test_scaffold_remembers_and_corrects_with_sampled_clients() -> None:
    """With 4 of 10 clients a step, some of them twice: c stays the mean of the c_i, which tend to ∇_y g_i(y*)."""
    task = Quadratic(**QUIET).build(0, 10)
    x, y = task.problem.init(stream(1))
    solver = Scaffold(steps=300, local_steps=3, step_size=0.1, batch_size=1)
    clients = federation(task, 4, replace=True).clients(stream(2))
    found, kept = solved(solver, clients, x, y + 1)
    assert torch.allclose(kept["c"], kept["c_i"].mean(0), atol=1e-12)
    star = task.problem.y_star(x)
    own = clients.map(grad_y_lower, clients.everyone(), x, star, draw=Draw("train", None))
    assert torch.allclose(kept["c_i"], own, atol=1e-6)
    assert (found - star).norm() < 1e-6
    again, _ = solved(Scaffold(steps=1, local_steps=3, step_size=0.1, batch_size=1), clients, x, star, kept)
    forgot, _ = solved(Scaffold(steps=1, local_steps=3, step_size=0.1, batch_size=1), clients, x, star)
    assert (again - star).norm() < 1e-5 < (forgot - star).norm()


def test_scaffold_starts_as_fedavg() -> None:
    task = tiny_task("hyper_representation")
    x, y = task.problem.init(stream(1))
    fields = {"steps": 1, "local_steps": 3, "step_size": 0.1, "batch_size": 4}
    a, _ = solved(Scaffold(**fields), federation(task, 6).clients(stream(2)), x, y)
    b = FedAvg(**fields).solve(federation(task, 6).clients(stream(2)), x, y, {})[0]
    assert torch.allclose(a, b, rtol=1e-12, atol=1e-14)


def test_proxskip_that_never_skips_is_gradient_descent() -> None:
    """The shifts add up to zero, so they cancel in the mean."""
    task = Quadratic(**QUIET).build(0, 10)
    x, y = task.problem.init(stream(1))
    a, _ = solved(ProxSkip(steps=5, probability=1, step_size=0.3, batch_size=1), everyone(task), x, y + 1)
    b = MinibatchSGD(steps=5, step_size=0.3, batch_size=1).solve(everyone(task), x, y + 1, {})[0]
    assert torch.allclose(a, b, rtol=1e-13, atol=1e-14)


def test_proxskip_communicates_at_random_times_of_the_given_mean() -> None:
    """1 + Binomial(T − 1, π) communications a call."""
    task, T, pi, calls = Quadratic(**QUIET).build(0, 4), 11, 0.3, 200
    x, y = task.problem.init(stream(1))
    solver, fed = ProxSkip(steps=T, probability=pi, step_size=0.3, batch_size=1), federation(task, 4)
    for call in range(calls):
        solved(solver, fed.clients(stream(call)), x, y)
    expected, deviation = 1 + pi * (T - 1), (pi * (1 - pi) * (T - 1) / calls) ** 0.5
    assert abs(fed.meter.communications / calls - expected) < 4 * deviation


def test_fedavg_stops_where_its_local_steps_balance() -> None:
    """y = mean_i [M_i^τ y + Σ_{j<τ} M_i^j β b_i] with M_i = I − βA_i, b_i = B_i x + c_i: not y*."""
    task, beta, tau = Quadratic(**QUIET).build(0, 10), 0.4, 5
    x, y = task.problem.init(stream(1))
    deviations = [torch.from_numpy(part) for part in task.data.lower_deviations(np.arange(10))]
    A, B, c = (mean + part for mean, part in zip(task.problem.mean_lower, deviations, strict=True))
    M = torch.eye(4).double() - beta * A
    b = beta * (B @ x + c)
    powers = [torch.linalg.matrix_power(M, j) for j in range(tau + 1)]
    drift = sum((power @ b.unsqueeze(-1)).squeeze(-1) for power in powers[:tau]).mean(0)
    fixed = torch.linalg.solve(torch.eye(4).double() - powers[tau].mean(0), drift)
    solver = FedAvg(steps=60, local_steps=tau, step_size=beta, batch_size=1)
    found = solver.solve(everyone(task), x, y, {})[0]
    assert (found - fixed).norm() < 1e-10
    assert (found - task.problem.y_star(x)).norm() > 1e-3


def test_fedavg_with_one_local_step_is_minibatch_sgd() -> None:
    """Up to rounding: one averages points, the other gradients."""
    task = tiny_task("hyper_representation")
    x, y = task.problem.init(stream(1))
    a = FedAvg(steps=3, local_steps=1, step_size=0.2, batch_size=4).solve(
        federation(task, 6).clients(stream(2)), x, y, {}
    )[0]
    b = MinibatchSGD(steps=3, step_size=0.2, batch_size=4).solve(federation(task, 6).clients(stream(2)), x, y, {})[0]
    assert torch.allclose(a, b, rtol=1e-12, atol=1e-14)


def test_fedsvrg_with_one_local_step_is_a_step_along_the_anchor() -> None:
    """Up to the rounding of a mean of equal vectors; the minibatch cancels to the bit."""
    task = tiny_task("hyper_representation")
    x, y = task.problem.init(stream(1))
    clients = federation(task, 6).clients(stream(2))
    stepped = FedSVRG(steps=1, local_steps=1, step_size=0.2, batch_size=4).solve(clients, x, y, {})[0]
    clients = federation(task, 6).clients(stream(2))
    anchor = clients.mean(grad_y_lower, clients.sample(), x, y, draw=Draw("train", None))
    assert torch.allclose(stepped, y - 0.2 * anchor, rtol=1e-14, atol=1e-15)


def test_fedlin_with_equal_steps_is_fedsvrg_with_full_gradients() -> None:
    """On noise-free clients; up to rounding, as β/τ is formed on different sides."""
    task = Quadratic(**QUIET).build(3, 10)
    x, y = task.problem.init(stream(1))
    a = FedLin(steps=2, local_steps=4, step_size=0.8).solve(everyone(task), x, y + 1, {})[0]
    b = FedSVRG(steps=2, local_steps=4, step_size=0.2, batch_size=1).solve(everyone(task), x, y + 1, {})[0]
    assert torch.allclose(a, b, rtol=1e-13, atol=1e-14)


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
    fast = gap(accelerated.solve(everyone(task), x, start, {})[0])
    assert fast <= 4 * 2.0 * float((start - y).square().sum()) / (steps * (steps + 1))
    assert fast < gap(plain.solve(everyone(task), x, start, {})[0]) / 2


def test_fedlin_refuses_an_empty_range() -> None:
    with pytest.raises(ConfigError, match="local_steps: `fewest <= most` must hold, but got fewest=5, most=4"):
        construct(FedLin, {"steps": 1, "local_steps": {"fewest": 5, "most": 4}, "step_size": 0.1})


def test_unequal_local_steps_are_counted_as_they_are_taken() -> None:
    """All local data in every step: τ_i passes in the second communication, one in the first."""
    task = tiny_task("hyper_representation")
    x, y = task.problem.init(stream(1))
    fed = federation(task, 20, replace=False, seed=3)
    clients = fed.clients(stream(2))
    solver = FedLin(steps=1, local_steps={"fewest": 2, "most": 5}, step_size=0.1)
    tau = solver.local_steps.of(clients).of(np.arange(20))
    assert set(tau) == {2, 3, 4, 5}
    solver.solve(clients, x, y, {})
    assert fed.meter.samples == int(((1 + tau) * task.data.splits["train"].size).sum())
