"""What records say of a point: the figures' own formulas, however test data are cut, and nothing computed twice."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tasks import TINY_PROBLEMS, tiny_config, tiny_task
from test_lockstep import side_by_side, without_time
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.execution import Block, BlockKernel, Job
from fedmbo_ray.federation.reduction import Part
from fedmbo_ray.problems import figures
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.figures import metrics_of, part_of
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.evaluation import Evaluation
from fedmbo_ray.runs.loop import run

DATA = [name for name in TINY_PROBLEMS if not name.startswith("quadratic")]
Formula = Callable[[Task, Tensor, Tensor], dict[str, Tensor]]  # figures from all test data at once


def classified(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    inputs, targets, *_ = task.test
    z = task.problem.model(x, y)(inputs)
    return {"test_loss": cross_entropy(z, targets), "test_accuracy": (z.argmax(1) == targets).double().mean()}


def personal(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    ys, owners, found = y.expand(20, -1), task.problem.owners[task.test.rows], []
    for i in owners.unique():
        z, targets = task.problem.model(x, ys[i])(task.test.inputs[owners == i]), task.test.targets[owners == i]
        found.append([cross_entropy(z, targets), (z.argmax(1) == targets).double().mean()])
    losses, right = torch.tensor(found, dtype=torch.float64).T
    return {
        "test_loss": losses.mean(),
        "test_accuracy": right.mean(),
        "worst_tenth_accuracy": right.sort().values[:2].mean(),
    }


def pairs(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    s, positive = task.problem.scores(x, task.test.inputs), task.test.targets == task.problem.positive
    gaps = 1 - s[positive].unsqueeze(1) + s[~positive]
    wins = (gaps < 1).double() + 0.5 * (gaps == 1).double()
    return {"test_loss": gaps.square().mean(), "test_auc": wins.mean()}


def balanced(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    z, targets = task.problem.model(x, y)(task.test.inputs), task.test.targets
    losses, right = cross_entropy(z, targets, reduction="none"), (z.argmax(1) == targets).double()
    each = torch.stack([torch.stack([losses[targets == c].mean(), right[targets == c].mean()]) for c in range(10)])
    return {
        "test_loss": each[:, 0].mean(),
        "test_accuracy": each[:, 1].mean(),
        "tail_accuracy": each[task.problem.tail, 1].mean(),
    }


def numbers(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    mean = (task.problem.features(x, task.test.inputs) @ y[:-1] + y[-1] - task.test.targets).square().mean()
    return {"test_loss": mean / 2, "test_rmse": task.problem.target_std * mean.sqrt()}


def risky(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    losses = cross_entropy(task.problem.model(x, y)(task.test.inputs), task.test.targets, reduction="none")
    variance = losses.var(correction=0)
    return {"test_loss_variance": variance, "test_risk": losses.mean() + task.problem.risk * variance}


def weighed(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    u = task.problem.client_weights(y)
    return {**classified(task, x, y), "smallest_weight": u.min(), "largest_weight": u.max()}


FORMULAS: dict[str, Formula] = {
    "personal_heads": personal,
    "ridge_head": numbers,
    "loss_tuning": balanced,
    "auc": pairs,
    "risk_averse": risky,
    "robust_clients": weighed,
}


def point(task: Task) -> tuple[Tensor, Tensor]:
    rng = stream(1)
    return tuple(start + 0.1 * torch.from_numpy(rng.standard_normal(start.shape)) for start in task.problem.init(rng))


def losses(task: Task, x: Tensor, ys: Tensor, size: int) -> dict[str, Tensor]:
    """The mean over clients of their losses on the samples that all records use, client by client."""
    m, rng = task.data.num_clients, stream(0, "evaluation")
    seeds, found = rng.integers(0, 2**64, size=(2, m), dtype=np.uint64), {}
    splits = (("train", "lower_loss", task.problem.lower), ("validation", "upper_loss", task.problem.upper))
    for own, (split, name, loss) in zip(seeds, splits, strict=True):
        batches = task.data.draw(np.arange(m), own, Draw(split, size), torch.device("cpu"))
        rows = [type(batches)(*(field[i] for field in batches)) for i in range(m)]
        found[name] = torch.stack([loss(x, y, row) for y, row in zip(ys, rows, strict=True)]).mean()
    return found


@pytest.mark.parametrize(("name", "own"), [*((name, False) for name in DATA), ("personal_heads", True)])
def test_figures_are_those_of_their_formulas(name: str, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test data are cut into parts of 100, the last of which is smaller; losses are summed over ten blocks or more."""
    monkeypatch.setattr(figures, "PART", 100)
    task, config = tiny_task(name), tiny_config(name)
    x, y = point(task)
    y = y + 0.1 * torch.from_numpy(stream(2).standard_normal((20, len(y)))) if own else y
    found = Evaluation(config, task, InProcess(task)).figures({"x": x, "y": y}, 0)
    with torch.no_grad():
        expected = FORMULAS.get(name, classified)(task, x, y) | losses(task, x, y.expand(20, -1), 250)
    assert {key: found[key] for key in expected} == pytest.approx(
        {key: float(value) for key, value in expected.items()}, rel=1e-12, abs=1e-12
    )
    assert len(task.test.targets) % 100 != 0
    everything = metrics_of(task.problem, x, y, task.test)
    assert everything == {key: found[key] for key in everything}  # to the last bit
    assert set(found) == {"lower_loss", "upper_loss", *everything}


class Counted(InProcess):
    """Counts the jobs of evaluations."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.jobs: list[str] = []

    def run(self, job: Job, blocks: list[Block]) -> Part[Tensor]:
        if isinstance(job.kernel, BlockKernel):
            self.jobs.append(job.kernel.function.__name__)
        return super().run(job, blocks)


def counted(config: Any, task: Task) -> tuple[list[dict[str, Any]], Counted]:
    """The records of a run, and its backend."""
    made: list[Counted] = []

    def backend(task: Task) -> Counted:
        made.append(Counted(task))
        return made[-1]

    return list(run(config, make_backend=backend, task=task)), made[0]


def test_no_figure_is_computed_twice() -> None:
    record = {"every": 2, "averaged": ["test_loss"]}
    config = tiny_config("hyper_representation", rounds=4, record=record)
    records, backend = counted(config, build_task(config))
    assert len(records) == 3
    assert backend.jobs.count("predicted") == 5  # after 0, 1, 2, 3 and 4 rounds
    assert backend.jobs.count("summed_losses") == 3


class AsAWhole:
    """A problem with nothing but the four methods that every problem had."""

    def __init__(self, problem: Any) -> None:
        self.init, self.upper, self.lower, self.problem = problem.init, problem.upper, problem.lower, problem
        self.calls = 0

    def metrics(self, x: Tensor, y: Tensor, test: Any) -> dict[str, float]:
        self.calls += 1
        return metrics_of(self.problem, x, y, test)


def test_a_problem_with_metrics_of_its_own_is_evaluated_by_them_once_at_each_point() -> None:
    record = {"every": 2, "averaged": ["test_loss"]}
    config = tiny_config("hyper_representation", rounds=4, record=record)
    task = build_task(config)
    whole = AsAWhole(task.problem)
    records, backend = counted(config, task._replace(problem=whole))
    assert whole.calls == 5
    assert set(backend.jobs) == {"summed_losses"}
    for record, expected in zip(records[1:], list(run(config, task=task))[1:], strict=True):
        for key in ("upper_loss", "lower_loss", "test_accuracy", "test_loss", "mean_test_loss"):
            assert record[key] == pytest.approx(expected[key], rel=1e-9)


def test_evaluating_costs_the_protocol_nothing_and_changes_no_bit() -> None:
    often, never = (list(run(tiny_config("hyper_representation", record={"every": k})))[-1] for k in (1, 1000))
    for key in ("communications", "samples", "floats_up", "floats_down", "x_sha256", "y_sha256", "upper_loss"):
        assert often[key] == never[key]


def test_side_by_side_records_have_the_bits_that_they_have_alone() -> None:
    configs = [tiny_config("hyper_representation", seed=seed, rounds=2) for seed in range(2)]
    for each, together in zip(configs, side_by_side(configs), strict=True):
        assert without_time(together) == without_time(list(run(each)))


def test_who_writes_to_a_part_does_not_write_to_the_test_data() -> None:
    test = tiny_task("hyper_representation").test
    before = test.inputs.clone()
    part_of(test, 0, torch.device("cpu")).inputs.zero_()
    assert torch.equal(test.inputs, before)
