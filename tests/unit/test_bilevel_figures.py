"""Exact figures of bilevel progress, against definitions that need no conjugate gradients."""

import numpy as np
import pytest
import torch
from torch.func import grad, hessian, jacrev

from fedmbo_ray import Run, run_experiment
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.problems.oracles import one_slot
from fedmbo_ray.runs.bilevel import ExactFigures, cosine

SMALL = (
    "problem={name: hyper_cleaning, regularization: 0.05, dtype: float64}",
    "data={name: digits, partition: iid, label_noise: 0.3}",
    "clients.num_clients=7",
)


def whole(run: Run, split: str) -> object:
    """All data of a split, each client's with the same weight in total."""
    data = run._built().data
    ids = np.arange(data.num_clients)
    batch = one_slot(data.draw(ids, ids.astype(np.uint64), Draw(split, None), torch.device("cpu")))
    return type(batch)(*(field[0] for field in batch))


def test_the_solution_is_that_of_its_definitions() -> None:
    run = Run(
        None,
        *SMALL,
        "problem=hyper_representation",
        "problem.dtype=float64",
        "problem.regularization=0.1",
        "problem.backbone={name: mlp, width: 3}",
        rounds=5,
        progress=False,
    )
    problem, x, y = run._built().problem, *run._built().problem.init(np.random.default_rng(0))
    train, validation = whole(run, "train"), whole(run, "validation")
    found = ExactFigures(run._built()).at(x, y)
    assert float(grad(problem.lower, 1)(x, found.y, train).norm()) < 1e-7
    assert abs(found.phi - float(problem.upper(x, found.y, validation))) < 1e-9
    H = hessian(problem.lower, 1)(x, found.y, train)
    v = torch.linalg.solve(H, grad(problem.upper, 1)(x, found.y, validation))
    direct = grad(problem.upper, 0)(x, found.y, validation)
    implicit = jacrev(lambda x: grad(problem.lower, 1)(x, found.y, train) @ v)(x)
    assert torch.allclose(found.gradient, direct - implicit, rtol=1e-5, atol=1e-9)
    assert found.implicit_share == pytest.approx(float(implicit.norm() / (implicit.norm() + direct.norm())), rel=1e-5)


def test_phi_falls_as_its_gradient_says() -> None:
    run = Run(None, *SMALL, rounds=5, progress=False)
    x, y = run._built().problem.init(np.random.default_rng(0))
    exact = ExactFigures(run._built())
    found = exact.at(x, y)
    step = 1e-2 * found.gradient / found.gradient.norm()
    slope = (exact.at(x + step, y).phi - exact.at(x - step, y).phi) / 2e-2
    assert slope == pytest.approx(float(found.gradient.norm()), rel=1e-4)


def test_records_have_them_every_so_many_rounds_and_at_the_end() -> None:
    words = (*SMALL, "record.every=2", "record.exact_every=4", "algorithm.hypergradient={name: exact}")
    run = run_experiment(None, *words, rounds=10, progress=False)
    told = run.records.dropna(subset=["phi"])
    assert list(told["round"]) == [0, 4, 8, 10]
    assert (told["implicit_share"] == 1).all()  # x weighs training rows alone
    assert np.isnan(told["hypergradient_cosine"].iloc[0])
    assert (told["hypergradient_cosine"].iloc[1:] > 0.9).all()  # not 1: y is not y*(x) yet
    without = run_experiment(None, *words, "record.exact_every=null", rounds=10, progress=False)
    assert without.records["x_sha256"].iloc[-1] == run.records["x_sha256"].iloc[-1]


def test_problems_without_fixed_data_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"record.exact_every: needs data of a fixed size"):
        run_experiment("quadratic", "record.exact_every=1", rounds=1, progress=False)


def test_cosine() -> None:
    a, b = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])
    assert cosine(a, b) == pytest.approx(0.5**0.5)
    assert np.isnan(cosine(a, 0 * b))
