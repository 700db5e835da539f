"""Exact moments against what is measured, with standard errors as tolerances."""

from typing import Any

import numpy as np
import pytest
from test_lockstep import side_by_side

from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.components import construct
from fedmbo_ray.theory.predictions import NotPredicted, constants, moments_of, predicted

SEEDS = 48


def double_loop(name: str) -> dict[str, Any]:
    lower = {"name": "minibatch_sgd", "steps": 2, "step_size": 0.2, "batch_size": 2}
    above = {"name": name, "terms": 4, "batch_size": 1}
    return {"name": "double_loop", "step_size": 0.1, "smoothness": 1.0, "lower": lower, "hypergradient": above}


def draws(name: str) -> dict[str, Any]:
    above = {"name": name, "terms": 4, "batch_size": 1}
    return {"name": "hypergradient_draws", "smoothness": 1.0, "hypergradient": above}


SOBA = {"name": "d_soba", "step_size": 0.1, "lower_step_size": 0.3, "system_step_size": 0.3, "batch_size": 1}
LOWER = {"name": "lower_draws", "lower": {"name": "minibatch_sgd", "steps": 3, "step_size": 0.1, "batch_size": 4}}


def config(algorithm: dict[str, Any], seed: int = 0, replace: bool = True, **problem: Any) -> RunConfig:
    fields = {
        "seed": seed,
        "rounds": 40,
        "problem": {"name": "quadratic", "seed": 7, **problem},
        "clients": {"num_clients": 30, "cohort_size": 4, "block_size": 64, "replace": replace},
        "algorithm": algorithm,
        "record": {"every": 1000, "averaged": ["hypergradient_norm_sq"]},
    }
    return construct(RunConfig, fields)


CASES = {
    **{f"{name} in a run": (double_loop(name), True) for name in ("phe", "phe_sum", "ihgp", "ihgp_sum")},
    **{f"draws of {name}": (draws(name), True) for name in ("phe", "phe_sum", "ihgp", "ihgp_sum")},
    "d_soba": (SOBA, True),
    "lower": (LOWER, True),
    "lower without replacement": (LOWER, False),
    "ihgp without replacement": (double_loop("ihgp"), False),
}


@pytest.mark.parametrize("case", list(CASES))
def test_means_over_seeds_are_as_predicted(case: str) -> None:
    """4 standard errors, of 48 seeds."""
    algorithm, replace = CASES[case]
    lasts = [records[-1] for records in side_by_side([config(algorithm, seed, replace) for seed in range(SEEDS)])]
    expected = [figures for _, figures in zip(range(41), predicted(config(algorithm, 0, replace)), strict=False)][-1]
    assert expected
    for name, value in expected.items():
        measured = np.array([record[name] for record in lasts])
        error = measured.std(ddof=1) / SEEDS**0.5
        print(
            f"{case}: {name} {measured.mean():.4f} for {value:.4f}, {(measured.mean() - value) / error:+.2f} errors off"
        )
        assert abs(measured.mean() - value) < 4 * error


def test_the_mean_of_phe_is_the_truncated_neumann_hypergradient() -> None:
    moments = moments_of(config(draws("phe")))
    figures, w = next(predicted(config(draws("phe")))), moments.start()
    x, y = (w[moments.places[name]] for name in "xy")
    import torch

    exact = moments.problem.surrogate(torch.from_numpy(x), torch.from_numpy(y), 4, 1.0)
    assert np.allclose([figures[f"estimate_{i}"] for i in range(4)], exact.numpy(), rtol=1e-12)


def test_the_hypergradient_as_a_matrix() -> None:
    import torch

    moments = moments_of(config(SOBA))
    w = moments.start()
    exact = moments.problem.hypergradient(torch.from_numpy(w[moments.places["x"]]))
    assert np.allclose(moments.hypergradient() @ w, exact.numpy(), rtol=1e-12)


def test_constants_are_those_of_the_point() -> None:
    found = constants(config(LOWER))
    assert found["condition"] == pytest.approx(1 / 0.3)
    step = next(predicted(config({**LOWER, "lower": {**LOWER["lower"], "steps": 1}})))["lower_move_sq"]
    assert step == pytest.approx(0.1**2 * (found["sample_variance"] / 4 + found["client_variance"]) / 4, rel=1e-9)


@pytest.mark.parametrize(
    ("algorithm", "replace", "problem", "why"),
    [
        (double_loop("local_neumann"), True, {}, "no closed form"),
        (double_loop("phe"), False, {}, "not independent"),
        (SOBA, True, {"nonconvexity": 1.0}, "not a quadratic"),
        ({**SOBA, "step_size": {"name": "decay", "initial": 0.1}}, True, {}, "change from round to round"),
        ({"name": "simfbo"}, True, {}, "not a double loop"),
    ],
)
def test_what_has_no_closed_form_is_said(algorithm, replace, problem, why) -> None:
    with pytest.raises(NotPredicted, match=why):
        next(predicted(config(algorithm, 0, replace, **problem)))
