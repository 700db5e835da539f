"""Closed forms of problems: optima of the lower level, exact hypergradients, and what data are refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tasks import federation, tiny_config, tiny_task
from torch import Tensor
from torch.func import grad

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.methods.hypergradients import HYPERGRADIENTS
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.fair_reweighting import odds_gap, squared_gaps
from fedmbo_ray.problems.figures import metrics_of
from fedmbo_ray.problems.oracles import grad_y_lower, hessian_yy
from fedmbo_ray.runs.build import build_task

CPU = torch.device("cpu")


def point(task: Task) -> tuple[Tensor, Tensor]:
    rng = stream(1)
    return tuple(start + 0.1 * torch.from_numpy(rng.standard_normal(start.shape)) for start in task.problem.init(rng))


def everything(task: Task, split: str):
    """All samples of all clients as one batch, whose loss is the mean over clients."""
    clients = np.arange(task.data.num_clients)
    return task.data.draw(clients, np.zeros(len(clients), dtype=np.uint64), Draw(split, None), CPU).merged()


def hypergradient(task: Task, name: str, x: Tensor, y: Tensor, **parameters) -> Tensor:
    clients = federation(task, task.data.num_clients, replace=False).clients(stream(2))
    return HYPERGRADIENTS[name](**parameters).estimate(clients, x, y, torch.tensor(1.0), {})[0]


def solved(task: Task, x: Tensor, y: Tensor) -> Tensor:
    """y*(x) by damped steps of Newton's method, with dense Hessians."""
    train = everything(task, "train")
    gradient = grad_y_lower(task.problem, train, x, y)
    while gradient.norm() > 1e-11:
        H = torch.stack([hessian_yy(task.problem, train, x, y, unit) for unit in torch.eye(len(y), dtype=y.dtype)])
        step, size = torch.linalg.solve(H, gradient), 1.0
        while grad_y_lower(task.problem, train, x, y - size * step).norm() > (1 - size / 4) * gradient.norm():
            size /= 2
        y = y - size * step
        gradient = grad_y_lower(task.problem, train, x, y)
    return y


def slope(value, x: Tensor, direction: Tensor, step: float = 1e-5) -> Tensor:
    """The derivative in a direction by central differences."""
    return (value(x + step * direction) - value(x - step * direction)) / (2 * step)


def test_ridge_regression_is_solved_by_its_closed_form() -> None:
    task = tiny_task("ridge_head")
    x, _ = point(task)
    best = task.problem.exact_lower(x, task.data)
    train, validation = everything(task, "train"), everything(task, "validation")
    assert grad_y_lower(task.problem, train, x, best).norm() < 1e-12
    assert torch.allclose(task.problem.exact_value(x, task.data), task.problem.upper(x, best, validation))
    direction = torch.from_numpy(stream(3).standard_normal(len(x)))
    exact = hypergradient(task, "exact", x, best, tolerance=1e-12)
    value = lambda x: task.problem.exact_value(x, task.data)  # noqa: E731
    assert torch.isclose(exact @ direction, slope(value, x, direction), rtol=1e-6)
    assert torch.allclose(exact, grad(value)(x), rtol=1e-7, atol=1e-10)
    assert not torch.allclose(hypergradient(task, "direct", x, best, batch_size=64), exact, rtol=0.1)


def test_ridge_regression_predicts_in_the_units_of_the_data() -> None:
    task = tiny_task("ridge_head")
    x, _ = point(task)
    y = task.problem.exact_lower(x, task.data)
    figures, config = metrics_of(task.problem, x, y, task.test), tiny_config("ridge_head")
    targets = torch.from_numpy(config.data.load().test_targets)
    errors = task.problem.model(x, y)(task.test.inputs).detach().squeeze(1) - targets
    assert figures["test_rmse"] == pytest.approx(float(errors.square().mean().sqrt()))
    assert figures["test_r2"] == pytest.approx(float(1 - errors.square().mean() / targets.var(correction=0)))


@pytest.mark.parametrize("name", ["loss_tuning", "regularization", "regularization_per_class", "fair_reweighting"])
def test_all_of_the_hypergradient_is_implicit(name: str) -> None:
    """It agrees with differences of Φ, on the first six inputs to keep dense Hessians small."""
    task = small(tiny_task(name))
    x, y = point(task)
    best, validation = solved(task, x, y), everything(task, "validation")
    exact = hypergradient(task, "exact", x, best, tolerance=1e-12)
    assert not hypergradient(task, "direct", x, best, batch_size=8).any()
    direction = torch.from_numpy(stream(3).standard_normal(len(x)))
    value = lambda x: task.problem.upper(x, solved(task, x, best), validation)  # noqa: E731
    assert torch.isclose(exact @ direction, slope(value, x, direction), rtol=1e-5)


def small(task: Task) -> Task:
    """The task with six features."""
    data = task.data
    inputs = data.inputs.reshape(len(data.inputs), -1)
    inputs = inputs[:, 18:24] if inputs.shape[1] > 6 else inputs
    return task._replace(problem=replace(task.problem, shape=inputs.shape[1:]), data=replace(data, inputs=inputs))


@pytest.mark.parametrize("name", ["robust_clients", "auc"])
def test_the_hypergradient_of_a_minimax_problem_is_direct(name: str) -> None:
    task = tiny_task(name)
    x, y = point(task)
    best, rows = solved(task, x, y), everything(task, "validation")
    assert all(torch.equal(a, b) for a, b in zip(rows, everything(task, "train"), strict=True))
    assert task.data.num_samples == tiny_task("regularization").data.num_samples  # each row is counted once
    direct = grad(task.problem.upper)(x, best, rows)
    assert torch.allclose(hypergradient(task, "exact", x, best), direct, rtol=1e-9, atol=1e-12)
    elsewhere = hypergradient(task, "exact", x, y, tolerance=1e-12)  # f is quadratic in y: a Newton step reaches y*(x)
    assert torch.allclose(elsewhere, direct, rtol=1e-7, atol=1e-10)
    assert not torch.allclose(grad(task.problem.upper)(x, y, rows), direct, rtol=1e-3)
    direction = torch.from_numpy(stream(3).standard_normal(len(x)))
    value = lambda x: task.problem.upper(x, solved(task, x, best), rows)  # noqa: E731
    assert torch.isclose(direct @ direction, slope(value, x, direction), rtol=1e-6)


def test_robust_weights_of_clients_penalise_the_variance_of_their_losses() -> None:
    task = tiny_task("robust_clients")
    x, y = point(task)
    best, clients = solved(task, x, y), np.arange(20)
    batches = task.data.draw(clients, np.zeros(20, dtype=np.uint64), Draw("train", None), CPU)
    losses = batches.mean(task.problem.losses(x, batches))
    assert torch.allclose(task.problem.client_weights(best), 1 + losses - losses.mean())  # γ = 1
    worst = losses.mean() + 0.5 * losses.var(correction=0) + 0.5 * task.problem.regularization * x.square().sum()
    assert torch.isclose(task.problem.upper(x, best, everything(task, "train")), worst)


def test_auc_at_its_saddle_point_is_the_squared_loss_of_pairs() -> None:
    task = build_task(tiny_config("auc", data={"name": "digits", "partition": "iid", "weights": "by_size"}))
    x, y = point(task)
    rows = everything(task, "train")
    scores, positive = task.problem.scores(x, rows.inputs), rows.targets == 0
    mean = lambda own: (scores * rows.weights)[own].sum() / rows.weights[own].sum()  # noqa: E731
    x = torch.cat([x[:-2], mean(positive)[None], mean(~positive)[None]])
    best, p = solved(task, x, y), task.problem.share
    assert torch.isclose(best, mean(~positive) - mean(positive)).all()
    used = rows.weights > 0
    gaps = 1 - scores[positive & used].unsqueeze(1) + scores[~positive & used]
    saddle = task.problem.upper(x, best, rows) - 0.5 * task.problem.regularization * x[:-2].square().sum()
    assert torch.isclose(saddle, p * (1 - p) * (gaps.square().mean() - 1))


def test_risk_is_the_mean_and_the_variance_of_losses() -> None:
    task = tiny_task("risk_averse")
    x, y = point(task)
    train = everything(task, "train")
    losses = task.problem.losses(x, train)
    mean = train.mean(losses)
    variance = train.mean((losses - mean).square())
    best = solved(task, x, y)
    risk = mean + task.problem.risk * variance
    penalty = 0.5 * task.problem.regularization * x.square().sum()
    assert torch.isclose(task.problem.upper(x, best, train), risk + penalty)
    value = lambda x: task.problem.upper(x, train.mean(task.problem.moments(x, train).mT), train)  # noqa: E731
    for name, parameters in (("exact", {}), ("phe_sum", {"terms": 1, "batch_size": 4000})):
        found = hypergradient(task, name, x, best, **parameters)
        error = 1e-7 if name == "exact" else 0.05  # its samples are drawn
        assert (found - grad(value)(x)).norm() < error * found.norm()
    assert torch.allclose(hypergradient(task, "direct", x, best, batch_size=1), task.problem.regularization * x)


def test_classes_weigh_alike_in_the_upper_loss() -> None:
    task = tiny_task("loss_tuning")
    x, y = point(task)
    rows = everything(task, "validation")
    losses = task.problem.losses(y, rows)
    classes = [rows.targets == kind for kind in range(10)]
    means = [(losses * rows.weights)[own].sum() / rows.weights[own].sum() for own in classes]
    there = torch.stack(means)[task.problem.class_weights > 0]
    assert torch.isclose(task.problem.upper(x, y, rows), there.sum() / 10)


def test_gaps_between_groups() -> None:
    losses, weights = torch.tensor([1.0, 3.0, 4.0, 10.0]), torch.full((4,), 0.25)
    assert squared_gaps(losses, weights, torch.tensor([0, 0, 1, 1]), 2) == 25
    assert squared_gaps(losses, weights, torch.tensor([2, 2, 2, 2]), 3) == 0
    assert squared_gaps(losses, weights, torch.tensor([0, 0, 2, 2]), 3) == 25  # the group in the middle is not there
    predicted, truth = torch.tensor([0, 0, 1, 1, 1, 0]), torch.tensor([0, 0, 1, 1, 0, 0])
    of = torch.tensor([0, 0, 0, 1, 1, 1])
    assert odds_gap(predicted, truth, of, 2) == 0.5  # the second group: one of two negatives is taken for a positive


def test_clients_are_fair_each_to_its_own_groups() -> None:
    task = tiny_task("fair_reweighting")
    x, y = point(task)
    merged = everything(task, "validation")
    alone = [task.problem.upper(x, y, type(merged)(*(field[i] for field in merged))) for i in range(20)]
    assert torch.isclose(task.problem.upper(x, y, merged), torch.stack(alone).mean())


def test_groups_are_compared_within_labels() -> None:
    task = tiny_task("fair_reweighting_cells")
    x, y = point(task)
    rows = type(merged := everything(task, "validation"))(*(field[0] for field in merged))
    losses, groups = task.problem.losses(y, rows), task.problem.groups[rows.rows]
    gaps = []
    for label in range(task.problem.num_classes):
        cells = [(rows.targets == label) & (groups == group) & (rows.weights > 0) for group in (0, 1)]
        gaps.append((losses[cells[0]].mean() - losses[cells[1]].mean()) ** 2 if all(map(torch.any, cells)) else 0.0)
    assert sum(gaps) > 0
    share = rows.weights.sum()
    expected = (losses * rows.weights).sum() + share * task.problem.fairness * sum(gaps) / len(gaps)
    assert torch.isclose(task.problem.upper(x, y, rows), expected)


REFUSED = {
    "RidgeHead needs numbers to predict, but the targets of digits are labels": {"problem": "ridge_head"},
    "FairReweighting needs groups, but digits has none": {"problem": "fair_reweighting"},
    "must be a label, 0 to 9, but is 10": {"problem": {"name": "auc", "positive": 10}},
    "needs labels to thin, but the targets of small_data:numbers are numbers": {
        "problem": "ridge_head",
        "data": {"name": "small_data:numbers", "partition": "iid", "imbalance": 5},
    },
    **{
        f"{title} needs labels, but the targets of small_data:numbers are numbers": {
            "problem": name,
            "data": {"name": "small_data:numbers", "partition": "iid"},
        }
        for name, title in (("loss_tuning", "LossTuning"), ("auc", "AUC"), ("fair_reweighting", "FairReweighting"))
    },
}


@pytest.mark.parametrize("said", REFUSED)
def test_data_that_a_problem_can_t_use_are_refused_in_one_line(said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_task(tiny_config("hyper_cleaning", **REFUSED[said]))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_neumann_series_only_adds_noise_to_a_minimax_problem() -> None:
    """At y*(x), where the implicit term is 0: client by client it is not."""
    task = tiny_task("robust_clients")
    x, y = point(task)
    best = solved(task, x, y)
    exact, errors = grad(task.problem.upper)(x, best, everything(task, "validation")), {}
    for name, parameters in (("direct", {}), ("ihgp_sum", {"terms": 3}), ("phe_sum", {"terms": 3})):
        estimator, fed = HYPERGRADIENTS[name](batch_size=8, **parameters), federation(task, 6)
        drawn = [estimator.estimate(fed.clients(stream(k)), x, best, torch.tensor(1.0), {})[0] for k in range(30)]
        errors[name] = float(torch.stack([(h - exact).square().sum() for h in drawn]).mean())
    assert 5 * errors["direct"] < errors["ihgp_sum"]
    assert 2 * errors["ihgp_sum"] < errors["phe_sum"]
