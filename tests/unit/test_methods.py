"""Whole methods on heterogeneous quadratics: where they converge or stop short, and how they reduce to each other."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tasks import tiny_config, tiny_task

from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.methods.algorithms import ALGORITHMS
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.quadratic import Quadratic
from fedmbo_ray.runs.loop import Loop

QUIET = {"gradient_noise": 0, "hessian_noise": 0, "jacobian_noise": 0}


def run(task: Task, name: str, rounds: int, n: int | None = None, replace: bool = False, **fields: Any) -> torch.Tensor:
    """x after every round of a method; with all clients unless `n` is given."""
    m = task.data.num_clients
    clients = {"num_clients": m, "cohort_size": n or m, "replace": replace, "block_size": 64}
    config = tiny_config(clients=clients, rounds=rounds, record={"every": rounds})
    loop = Loop(config.model_copy(update={"algorithm": construct(ALGORITHMS[name], fields)}), task=task)
    loop.config = loop.config.model_copy(update={"seed": 1})  # of its rounds, not of where it starts
    found = []
    while not loop.done:
        loop.step()
        found.append(loop.state["x"])
    return torch.stack(found)


def gradients(task: Task, xs: torch.Tensor) -> torch.Tensor:
    """The exact ‖∇Φ‖² at each x."""
    return torch.stack([task.problem.hypergradient(x).square().sum() for x in xs])


# Rounds, tolerance of the mean exact ‖∇Φ‖² over the last fifth of them, parameters. It starts at 2.3. One random depth
# for all clients leaves noise that only smaller steps reduce, local steps a drift of the order of the step.
SGD = {"steps": 3, "step_size": 0.5, "batch_size": 1}
TERM = {"smoothness": 1, "step_size": {"name": "decay", "initial": 0.3, "power": 1.0, "offset": 10}}
SERIES = {"terms": 8, "batch_size": 1}
LOCAL_X = {"local_steps": 2, "batch_size": 1}
SINGLE = {"lower_step_size": 0.5, "system_step_size": 0.5, "batch_size": 1}
SMALL = {"local_step_size": 0.001, "local_lower_step_size": 0.001, "local_system_step_size": 0.001}
SLOW = {"step_size": 0.05, "lower_step_size": 0.2, "system_step_size": 0.2, "local_steps": 4, "batch_size": 1}
CONVERGES: dict[str, tuple[int, float, dict[str, Any]]] = {
    "fedmbo": (150, 0.01, {"lower": SGD, "hypergradient": SERIES, **TERM}),
    "fednest": (
        300,
        0.05,
        {
            "lower": {"steps": 2, "local_steps": 3, "step_size": 0.3, "batch_size": 1},
            "hypergradient": SERIES,
            "outer": LOCAL_X,
            **TERM,
        },
    ),
    "e_aipod": (
        300,
        0.05,
        {
            "lower": {"steps": 10, "probability": 0.3, "step_size": 0.3, "batch_size": 1},
            "hypergradient": SERIES,
            "outer": LOCAL_X,
            **TERM,
        },
    ),
    "aggitd": (300, 0.05, {"lower_step_size": 0.5, **SERIES, **TERM}),
    "bsa": (300, 0.05, {"lower": SGD, "hypergradient": SERIES, **TERM}),
    "ttsa": (300, 0.05, {"lower": {**SGD, "steps": 1}, "hypergradient": SERIES, **TERM}),
    "stocbio": (
        90,
        1e-6,
        {"lower": SGD, "hypergradient": {"terms": 40, "batch_size": 1}, "step_size": 0.3, "smoothness": 1},
    ),
    "amigo": (
        90,
        1e-6,
        {"lower": SGD, "hypergradient": {"steps": 3, "step_size": 0.5, "batch_size": 1}, "step_size": 0.3},
    ),
    "d_soba": (200, 1e-5, {"step_size": 0.1, **SINGLE}),
    "soba": (200, 1e-5, {"step_size": 0.1, **SINGLE}),
    "ma_soba": (200, 1e-2, {"step_size": 0.1, **SINGLE}),
    "memfbo": (200, 1e-5, {"step_size": 0.1, **SINGLE, "local_steps": 1}),
    "simfbo": (150, 1e-6, {**SLOW, **SMALL, "local_steps": 4}),
    "shrofbo": (200, 1e-6, {**SLOW, **SMALL, "local_steps": {"fewest": 1, "most": 4}}),
    "fedbio": (
        200,
        1e-3,
        {"step_size": 0.05, "lower_step_size": 0.15, "system_step_size": 0.15, "local_steps": 2, "batch_size": 1},
    ),
    "fedbioacc": (
        200,
        1e-3,
        {
            "step_size": 0.1,
            "lower_step_size": 0.3,
            "system_step_size": 0.3,
            "local_steps": 2,
            "batch_size": 1,
            "rate": {"name": "decay", "initial": 1, "power": 1 / 3, "offset": 5},
        },
    ),
    "fedmsa": (150, 1e-5, {"step_size": 0.05, "lower_step_size": 0.3, "local_steps": 3, "batch_size": None}),
    "f2sa": (
        80,
        0.02,
        {
            "step_size": 0.2,
            "lower_step_size": 0.5,
            "penalty_step_size": 0.01,
            "steps": 10,
            "multiplier": 30,
            "growth": 0.1,
            "batch_size": 1,
        },
    ),
    "sustain": (
        300,
        0.05,
        {
            "step_size": 0.2,
            "lower_step_size": 0.5,
            "rate": {"name": "decay", "initial": 0.9, "power": 1 / 3, "offset": 5},
            "smoothness": 1,
            **SERIES,
        },
    ),
    "mrbo": (
        100,
        0.01,
        {"step_size": 0.2, "lower_step_size": 0.5, "rate": 1, "smoothness": 1, **SERIES},
    ),
}
NOT_METHODS = ("double_loop", "hypergradient_draws", "lower_draws")
CLAIMED = [name for name in ALGORITHMS if name not in NOT_METHODS and ALGORITHMS[name].card.heterogeneity != "no"]
CLAIMED.remove("fednest_sgd")  # FedAvg's drift below: tested with the solver
PERSONAL = [name for name in CLAIMED if ALGORITHMS[name].card.personal]  # they have another Φ: see test_personal.py
CLAIMED = [name for name in CLAIMED if name not in PERSONAL]


ALONE = [name for name in ALGORITHMS if name != "double_loop" and ALGORITHMS[name].card.participation == "one"]


@pytest.mark.parametrize("name", CLAIMED + ALONE)
def test_methods_that_claim_heterogeneity_drive_the_exact_hypergradient_to_zero(name: str) -> None:
    """Methods for a single machine do so there."""
    assert name in CONVERGES, f"{name!r} claims heterogeneity on its card: say here how it is to converge"
    rounds, tolerance, fields = CONVERGES[name]
    task = Quadratic(**QUIET).build(0, 1 if name in ALONE else 20)
    found = float(gradients(task, run(task, name, rounds, **fields)[-rounds // 5 :]).mean())
    print(f"{name}: |grad Phi|^2 = {found:.2e} after {rounds} rounds, tolerance {tolerance:.0e}")
    assert found < tolerance


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedmbo", "shrofbo", "d_soba", "fedmsa"])
def test_sampled_clients_and_noise_leave_the_order_of_the_step(name: str) -> None:
    """With 5 of 20 clients and noisy oracles: a hundred times less than at the start (2.3)."""
    decay = {"name": "decay", "initial": 0.2, "power": 0.75, "offset": 20}
    single = {"step_size": decay, "lower_step_size": 0.1, "system_step_size": 0.1, "batch_size": 4}
    fields = {
        "fedmbo": {
            "lower": {"steps": 3, "step_size": 0.1, "batch_size": 4},
            "hypergradient": {"terms": 8, "batch_size": 4},
            "step_size": {"name": "decay", "initial": 0.2, "power": 1.0, "offset": 20},
            "smoothness": 1,
        },
        "shrofbo": {
            "step_size": {"name": "decay", "initial": 0.2, "power": 1.0, "offset": 20},
            "lower_step_size": 0.05,
            "system_step_size": 0.05,
            "batch_size": 4,
        },
        "fedmsa": {
            "step_size": {"name": "decay", "initial": 0.1, "power": 0.75, "offset": 20},
            "lower_step_size": 0.05,
            "batch_size": 4,
        },
    }
    task = Quadratic().build(0, 20)
    xs = run(task, name, 400, n=5, replace=True, **fields.get(name, single))
    found = float(gradients(task, xs[-80:]).mean())
    print(f"{name}: |grad Phi|^2 = {found:.2e}")
    assert found < 0.023


# Fully local hypergradients.


def where_local_hypergradients_vanish(task: Task, terms: int) -> torch.Tensor:
    """The x where mean_i[∇_x f_i − J_i K_i ∇_y f_i](x, y*(x)) = 0, with K_i = Σ_{j<N}(I − A_i)^j for A_i⁻¹ (ℓ = 1)."""
    m, problem = task.data.num_clients, task.problem
    deviations = [torch.from_numpy(part) for part in problem.population.lower_deviations(np.arange(m))]
    A, B, _ = (mean + part for mean, part in zip(problem.mean_lower, deviations, strict=True))
    upper = problem.population.upper_batches(np.arange(m), draw_seeds(stream(0), m), None)
    eye = torch.eye(A.shape[-1], dtype=A.dtype)
    K = sum(torch.linalg.matrix_power(eye - A, j) for j in range(terms))
    BK = B.transpose(1, 2) @ K
    zero = torch.zeros(B.shape[-1], dtype=A.dtype)
    offset = problem.y_star(zero)
    slope = torch.linalg.solve(problem.mean_lower.A, problem.mean_lower.B)
    rho = problem.settings.upper_curvature
    left = rho * torch.eye(len(zero), dtype=A.dtype) + BK.mean(0) @ slope
    right = upper.u.mean(0) - (BK @ (offset - upper.t).unsqueeze(-1)).squeeze(-1).mean(0)
    return torch.linalg.solve(left, right)


MOMENTUM = {"local_steps": 1, "batch_size": 1, "smoothness": 1}
LOCAL: dict[str, tuple[int, float, dict[str, Any]]] = {  # rounds, relative tolerance of x, parameters
    "lfednest": (
        150,
        1e-6,
        {"lower": {**SGD, "local_steps": 1}, "step_size": 0.4, "terms": 12, "batch_size": 1, "smoothness": 1},
    ),
    "lfednest_svrg": (
        150,
        1e-6,
        {
            "lower": {"steps": 2, "local_steps": 3, "step_size": 0.3, "batch_size": 1},
            "step_size": 0.4,
            "terms": 12,
            "batch_size": 1,
            "smoothness": 1,
        },
    ),
    "local_bsgm": (900, 0.03, {"step_size": 0.1, "lower_step_size": 0.5, "rate": 0.5, "terms": 4, **MOMENTUM}),
    "local_bsgvrm": (
        300,
        1e-4,
        {"step_size": 0.2, "lower_step_size": 0.5, "rate": 0.9, "terms": 4, "series": "sum", **MOMENTUM},
    ),
    "adafbio": (
        900,
        0.03,
        {"step_size": 0.05, "lower_step_size": 0.3, "rate": 0.5, "damping": 0.5, "terms": 4, **MOMENTUM},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOCAL)
def test_methods_with_local_hypergradients_stop_at_their_bias(name: str) -> None:
    """For random Neumann terms it is the mean over the last two thirds of the rounds that is compared."""
    rounds, tolerance, fields = LOCAL[name]
    task = Quadratic(heterogeneity=2.0, **QUIET).build(0, 10)
    stop = where_local_hypergradients_vanish(task, fields["terms"])
    xs = run(task, name, rounds, **fields)
    found = xs[-1] if tolerance < 1e-3 else xs[rounds // 3 :].mean(0)
    predicted, measured = (float(gradients(task, x.unsqueeze(0))) for x in (stop, found))
    print(f"{name}: |grad Phi|^2 = {measured:.4f} where it stops, predicted {predicted:.4f}")
    assert (found - stop).norm() < tolerance * (stop - run(task, name, 1, **fields)[0]).norm()
    assert measured == pytest.approx(predicted, rel=0.2)
    assert predicted > 0.01


def where_both_losses_as_one_are_stationary(task: Task, w: float) -> torch.Tensor:
    """The x of the (x, y) where the gradient of w·f + (1 − w)·g vanishes."""
    (A, B, c), upper, rho = task.problem.mean_lower, task.problem.mean_upper, task.problem.settings.upper_curvature
    left = torch.cat(
        [
            torch.cat([w * rho * torch.eye(B.shape[1], dtype=B.dtype), -(1 - w) * B.T], 1),
            torch.cat([-(1 - w) * B, w * torch.eye(len(A), dtype=A.dtype) + (1 - w) * A], 1),
        ]
    )
    assert torch.linalg.eigvalsh(left).min() > 0.01
    right = torch.cat([w * upper.u, w * upper.t + (1 - w) * c])
    return torch.linalg.solve(left, right)[: B.shape[1]]


def test_single_level_stops_where_both_losses_as_one_are_stationary() -> None:
    task = Quadratic(**QUIET).build(0, 20)
    stop = where_both_losses_as_one_are_stationary(task, 0.8)
    x = run(task, "single_level", 60, step_size=0.5, lower_step_size=0.5, upper_weight=0.8, batch_size=1)[-1]
    assert torch.allclose(x, stop, rtol=1e-6)
    assert float(gradients(task, stop.unsqueeze(0))) > 0.01


def test_single_level_that_moves_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be above 0, but both are 0") as caught:
        construct(ALGORITHMS["single_level"], {"step_size": 0, "lower_step_size": 0})
    assert "\n" not in str(caught.value)


def test_every_method_is_known_to_converge_or_to_be_biased() -> None:
    assert {*CLAIMED, *PERSONAL, *ALONE, *LOCAL, *NOT_METHODS, "fednest_sgd", "single_level"} == set(ALGORITHMS)


LARGE = {"step_size": 0.05, "lower_step_size": 0.2, "system_step_size": 0.2, "local_steps": 8, "batch_size": 1}
AS_LARGE = {"local_step_size": 0.05, "local_lower_step_size": 0.2, "local_system_step_size": 0.2}
ONCE = {"step_size": 0.05, "lower_step_size": 0.2, "local_steps": 8, "batch_size": None}


@cache
def corrected() -> float:
    """Where FedMSA stops, whose local steps are corrected."""
    task = Quadratic(heterogeneity=2.0, **QUIET).build(0, 10)
    return float(gradients(task, run(task, "fedmsa", 150, **ONCE)[-1:]))


@pytest.mark.parametrize(
    ("name", "fields"),
    [("fedbio", LARGE), ("fedbioacc", {**LARGE, "rate": 1, "momentum": 0.5}), ("simfbo", {**LARGE, **AS_LARGE})],
)
def test_large_local_steps_drift_where_the_card_says_so(name: str, fields: dict[str, Any]) -> None:
    """FedMSA, whose local steps are corrected, does not drift at the same steps."""
    task = Quadratic(heterogeneity=2.0, **QUIET).build(0, 10)
    assert ALGORITHMS[name].card.heterogeneity == "drift"
    stops = float(gradients(task, run(task, name, 150, **fields)[-1:]))
    exact = corrected()
    print(f"{name} stops at |grad Phi|^2 = {stops:.3f}, FedMSA at {exact:.1e}")
    assert stops > 0.02
    assert exact < 1e-6


def test_unequal_local_steps_pull_simfbo_to_the_busy_clients_and_shrofbo_not() -> None:
    task = Quadratic(heterogeneity=2.0, **QUIET).build(0, 10)
    fields = {**SLOW, **SMALL, "local_steps": {"fewest": 1, "most": 4}}
    sim, shro = (float(gradients(task, run(task, name, 200, **fields)[-1:])) for name in ("simfbo", "shrofbo"))
    print(f"SimFBO stops at |grad Phi|^2 = {sim:.2e}, ShroFBO at {shro:.2e}")
    assert sim > 0.01
    assert shro < 1e-4 * sim


# Reductions.


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-12, atol=1e-13)


STEPS = {"step_size": 0.05, "lower_step_size": 0.2, "system_step_size": 0.1, "batch_size": 4}


@pytest.mark.parametrize("problem", ["quadratic", "hyper_representation"])
def test_simfbo_with_one_local_step_is_d_soba(problem: str) -> None:
    """Up to rounding: one adds up its clients' gradients, the other takes the gradient of their mean loss."""
    task = tiny_task(problem)
    assert close(run(task, "simfbo", 3, **STEPS, local_steps=1), run(task, "d_soba", 3, **STEPS))


def test_shrofbo_with_equal_local_steps_is_simfbo() -> None:
    task = tiny_task("hyper_representation")
    fields = {**STEPS, **SMALL, "local_steps": 3}
    assert close(run(task, "shrofbo", 3, **fields), run(task, "simfbo", 3, **fields))


def test_fedbio_with_one_local_step_is_simfbo_of_all_clients() -> None:
    """On noise-free clients, for the two draw their cohorts, and so their samples, differently."""
    task = Quadratic(**QUIET).build(2, 10)
    a = run(task, "fedbio", 3, **STEPS, local_steps=1)
    assert close(a, run(task, "simfbo", 3, **STEPS, local_steps=1))


def test_ma_soba_without_memory_is_d_soba_to_the_bit() -> None:
    task = tiny_task("hyper_representation")
    assert torch.equal(run(task, "ma_soba", 3, **STEPS, averaging=1.0), run(task, "d_soba", 3, **STEPS))


def test_finite_differences_of_a_quadratic_are_exact() -> None:
    task = tiny_task("quadratic")
    assert torch.allclose(run(task, "memfbo", 3, **STEPS), run(task, "simfbo", 3, **STEPS), rtol=1e-9)


def test_fedmbo_is_its_double_loop_to_the_bit() -> None:
    task = tiny_task("hyper_representation")
    lower, phe = {"steps": 2, "step_size": 0.2, "batch_size": 4}, {"terms": 3, "batch_size": 4}
    rest = {"step_size": 0.05, "smoothness": 20}
    a = run(task, "fedmbo", 3, lower=lower, hypergradient=phe, **rest)
    lower, phe = {"name": "minibatch_sgd", **lower}, {"name": "phe", **phe}
    assert torch.equal(a, run(task, "double_loop", 3, lower=lower, hypergradient=phe, **rest))


def test_lfednest_with_one_step_is_a_double_loop_with_local_hypergradients() -> None:
    task = tiny_task("hyper_representation")
    lower = {"steps": 1, "local_steps": 2, "step_size": 0.1, "batch_size": 4}
    rest = {"step_size": 0.05, "smoothness": 20}
    a = run(task, "lfednest", 3, lower=lower, local_steps=1, terms=3, batch_size=4, **rest)
    parts = {
        "lower": {"name": "fedavg", **lower},
        "hypergradient": {"name": "local_neumann", "terms": 3, "batch_size": 4},
    }
    assert close(a, run(task, "double_loop", 3, **parts, **rest))


def test_fedout_with_one_step_is_the_plain_step() -> None:
    """Up to the rounding of a mean of equal vectors."""
    task = tiny_task("hyper_representation")
    lower = {"name": "minibatch_sgd", "steps": 1, "step_size": 0.2, "batch_size": 4}
    parts = {"lower": lower, "hypergradient": {"name": "ihgp", "terms": 3, "batch_size": 4}, "smoothness": 20}
    fields = {**parts, "step_size": 0.05, "cohort": "fixed"}
    plain = run(task, "double_loop", 1, **fields)
    assert close(
        run(task, "double_loop", 1, **fields, outer={"name": "fedout", "local_steps": 1, "batch_size": 4}), plain
    )


def test_sustain_is_local_bsgvrm_of_one_client_to_the_bit() -> None:
    task = Quadratic().build(3, 1)
    fields = {"batch_size": 2, "terms": 3, "smoothness": 1}
    assert torch.equal(run(task, "sustain", 4, **fields), run(task, "local_bsgvrm", 4, local_steps=1, **fields))
