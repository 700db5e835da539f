"""Clients with lower problems of their own: closed forms, what is held out, and what is refused."""

import numpy as np
import pytest
import torch
from tasks import tiny_config, tiny_task
from torch.func import grad, hessian, jacrev

from fedmbo_ray import Run, run_experiment
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.problems.figures import metrics_of
from fedmbo_ray.problems.quadratic import Quadratic
from fedmbo_ray.runs.bilevel import ExactFigures
from fedmbo_ray.runs.build import distributed
from fedmbo_ray.runs.loop import Loop

QUIET = {"gradient_noise": 0, "hessian_noise": 0, "jacobian_noise": 0}
STEPS = {"step_size": 0.04, "lower_step_size": 0.8, "batch_size": 1}
METHODS = {
    "fedbio_local": {**STEPS, "system_step_size": 0.8, "local_steps": 1},
    "fedbioacc_local": {**STEPS, "system_step_size": 0.8, "local_steps": 1, "rate": 1.0, "momentum": 0.5},
    "lfednest_local": {**STEPS, "step_size": 0.3, "steps": 5, "terms": 40, "smoothness": 1.0},
}
SMALL = (
    "problem={name: personal_heads, regularization: 0.1, dtype: float64, backbone: {name: mlp, width: 3}}",
    "data={name: digits, partition: {name: dirichlet, alpha: 1.0}, validation: 0.4}",
    "clients={num_clients: 6, cohort_size: 6}",
    "algorithm=fedbio_local",
)


def quadratic_task(m: int = 6):
    return Quadratic(heterogeneity=2.0, nonconvexity=0.5, upper_dim=3, lower_dim=5, **QUIET).build(0, m)


def test_the_closed_forms_of_personal_quadratics_are_derivatives() -> None:
    problem = quadratic_task().problem
    own = problem.personal
    x, _ = problem.init(stream(0))

    def phi(x):
        return problem.upper(x, own.y_star(x), own.upper).mean()

    assert torch.allclose(own.hypergradient(x), grad(phi)(x), rtol=1e-10)
    at_star = vmap_grad_y(problem, x, own.y_star(x), own.lower)
    assert at_star.abs().max() < 1e-12
    assert not torch.allclose(own.hypergradient(x), problem.hypergradient(x), rtol=0.05)  # another problem


def vmap_grad_y(problem, x, ys, batches):
    return torch.stack(
        [grad(problem.lower, 1)(x, y, type(batches)(*row)) for y, *row in zip(ys, *batches, strict=True)]
    )


@pytest.mark.parametrize(
    ("name", "rounds", "error"),
    [("fedbio_local", 400, 1e-12), ("fedbioacc_local", 400, 1e-12), ("lfednest_local", 60, 1e-8)],
)
def test_methods_find_the_stationary_point_of_personal_problems(name: str, rounds: int, error: float) -> None:
    clients = {"num_clients": 6, "cohort_size": 6, "replace": False, "block_size": 6}
    config = tiny_config(
        algorithm={"name": name, **METHODS[name]}, clients=clients, rounds=rounds, record={"every": rounds}
    )
    *_, last = Loop(config, task=quadratic_task()).records()
    assert last["hypergradient_norm_sq"] < error  # a Neumann sum of 40 terms lacks 0.7^40 of the solution
    assert last["lower_error_sq"] < error


def test_one_y_for_all_finds_another_point() -> None:
    clients = {"num_clients": 6, "cohort_size": 6, "replace": False, "block_size": 6}
    algorithm = {"name": "fedbio", **METHODS["fedbio_local"]}
    loop = Loop(tiny_config(algorithm=algorithm, clients=clients, rounds=300), task=quadratic_task())
    while not loop.done:
        loop.step()
    assert quadratic_task().problem.personal.hypergradient(loop.state["x"]).norm() > 0.01


def test_exact_figures_are_those_of_their_definitions() -> None:
    run = Run(None, *SMALL, rounds=5, progress=False)
    task = run._built()
    problem, (x, y) = task.problem, task.problem.init(np.random.default_rng(0))
    found = ExactFigures(task).at(x, y.repeat(6, 1))
    phi, direct, implicit = [], [], []
    for i in range(6):
        train, validation = (
            type(batch)(*(field[0] for field in batch))
            for batch in (
                task.data.draw(np.array([i]), np.zeros(1, dtype=np.uint64), Draw(split, None), torch.device("cpu"))
                for split in ("train", "validation")
            )
        )
        y_i = found.y[i]
        assert float(grad(problem.lower, 1)(x, y_i, train).norm()) < 1e-7
        v = torch.linalg.solve(hessian(problem.lower, 1)(x, y_i, train), grad(problem.upper, 1)(x, y_i, validation))
        phi.append(float(problem.upper(x, y_i, validation)))
        direct.append(grad(problem.upper, 0)(x, y_i, validation))
        implicit.append(jacrev(lambda x, y_i=y_i, v=v, t=train: grad(problem.lower, 1)(x, y_i, t) @ v)(x))
    direct, implicit = torch.stack(direct).mean(0), torch.stack(implicit).mean(0)
    assert found.phi == pytest.approx(np.mean(phi), abs=1e-9)
    assert torch.allclose(found.gradient, direct - implicit, rtol=1e-5, atol=1e-8)
    assert found.implicit_share == pytest.approx(float(implicit.norm() / (implicit.norm() + direct.norm())), rel=1e-5)


def test_every_client_is_tested_on_rows_of_its_own_with_true_labels() -> None:
    run = Run(None, *SMALL, "data.label_noise=0.5", "problem.test=0.25", rounds=1, progress=False)
    task, whole = run._built(), distributed(run.config.data, run.config.data.load(), 0, 6).clients
    rows, owners = task.test.rows.numpy(), task.problem.owners[task.test.rows].numpy()
    labels = run.config.data.load().train_targets
    for i in range(6):
        before, left = set(whole.rows_of(i)), set(task.data.rows_of(i))
        tested = set(rows[owners == i])
        assert left | tested == before
        assert not left & tested
        assert abs(len(tested) - 0.25 * len(before)) <= 1
    assert (task.test.targets.numpy() == labels[rows]).all()
    assert float(task.test.weights.sum()) == pytest.approx(1.0)


def test_figures_of_one_classifier_for_all_are_those_of_equal_rows() -> None:
    task = tiny_task("personal_heads")
    x, y = task.problem.init(stream(3))
    assert metrics_of(task.problem, x, y, task.test) == metrics_of(task.problem, x, y.repeat(20, 1), task.test)
    logits = task.problem.upper_head.logits(y, task.problem.features(x, task.test.inputs))
    right, owners = (logits.argmax(1) == task.test.targets).double(), task.problem.owners[task.test.rows]
    each = [float(right[owners == i].mean()) for i in range(20)]
    figures = metrics_of(task.problem, x, y, task.test)
    assert figures["test_accuracy"] == pytest.approx(np.mean(each))
    assert figures["worst_tenth_accuracy"] == pytest.approx(np.mean(sorted(each)[:2]))


def test_personal_classifiers_beat_one_for_all_where_labels_mean_different_things() -> None:
    words = ("data.partition={name: by_digits, digits: 2}", "clients={num_clients: 20, cohort_size: 20}")
    changes = {"progress": False, "rounds": 40}
    own = run_experiment(None, *SMALL[:1], *words, "algorithm=fedbio_local", **changes)
    one = run_experiment(None, *SMALL[:1], *words, "algorithm=fedbio", **changes)
    assert own.records["test_accuracy"].iloc[-1] > one.records["test_accuracy"].iloc[-1] + 0.05
    assert own.y.shape == (20, len(one.y))
    module, row = own.model(client=3), torch.zeros(1, 1, 8, 8)
    assert module(row).shape == (1, 10)
    assert not torch.equal(module(row), own.model(client=4)(row))
    with pytest.raises(ConfigError, match=r"every client has a model of its own: client must be 0 to 19, but is None"):
        own.model()
    with pytest.raises(ConfigError, match=r"all clients share one model: call model\(\) without a client"):
        one.model(client=3)


def test_a_personal_method_on_a_problem_with_one_y_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"FedBiOLocal keeps a y for every client, but HyperRepresentationProblem"):
        run_experiment("algorithm=fedbio_local", "clients.cohort_size=50", rounds=1, progress=False)


def test_too_few_rows_to_test_on_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"problem.test: a client must have enough rows"):
        run_experiment(None, *SMALL, "problem.test=0.001", rounds=1, progress=False)
