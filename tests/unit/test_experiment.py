"""Runs that end early, in the middle of things, and what they leave behind."""

from pathlib import Path

import pytest
import torch
from tasks import ALGORITHM, tiny_config

from fedmbo_ray.core.errors import ConfigError, RunFailed
from fedmbo_ray.methods.algorithms.double_loop import DoubleLoop
from fedmbo_ray.runs import loop as experiment
from fedmbo_ray.runs.checkpoint import Checkpoint
from fedmbo_ray.runs.evaluation import Evaluation
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.loop import Loop, run
from fedmbo_ray.runs.state import diverged


def timeless(records: list[dict]) -> list[dict]:
    return [{key: value for key, value in record.items() if not key.endswith("_seconds")} for record in records]


CONFIG = tiny_config("quadratic", record={"every": 1, "checkpoint_every": 100})


@pytest.fixture
def undisturbed(tmp_path: Path) -> list[dict]:
    return timeless(list(run(CONFIG, RunFolder(tmp_path / "undisturbed"))))


class Stopped(Exception):
    pass


@pytest.mark.parametrize("calls", [1, 3, 8, 14, 18])
def test_an_interrupt_in_the_middle_of_a_round_costs_nothing(
    calls: int, undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a communication is interrupted, the resumed run has the records and counts of an undisturbed one."""
    left = [calls]

    def backend(task):
        here = experiment.in_process(task)
        original = here.run

        def interrupted(job, blocks):
            left[0] -= 1
            if left[0] == 0:
                raise Stopped
            return original(job, blocks)

        here.run = interrupted
        return here

    folder = RunFolder(tmp_path / "run")
    with pytest.raises(Stopped):
        list(run(CONFIG, folder, make_backend=backend))
    assert timeless(list(run(CONFIG, folder, resume=True))) == undisturbed
    assert timeless(folder.records()) == undisturbed


@pytest.mark.parametrize("round", [0, 1, 4])
def test_an_interrupt_while_a_record_is_made_costs_nothing(
    round: int, undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Evaluation.figures

    def interrupted(self, state, now):
        if now == round:
            raise Stopped
        return original(self, state, now)

    folder = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Evaluation, "figures", interrupted)
        with pytest.raises(Stopped):
            list(run(CONFIG, folder))
    assert timeless(list(run(CONFIG, folder, resume=True))) == undisturbed


def test_a_closed_run_saves_itself(undisturbed, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    records = run(CONFIG, folder)
    for _ in range(4):
        next(records)
    records.close()
    assert folder.saved_round() == 3
    assert timeless(list(run(CONFIG, folder, resume=True))) == undisturbed


def test_a_state_may_have_integers_and_only_x_and_y_may_not_be_large(tmp_path: Path, monkeypatch) -> None:
    init, step = DoubleLoop.init, DoubleLoop.round

    def begun(self, x, y, num_clients):
        more = {"seen": torch.zeros(num_clients, dtype=torch.int64), "sum": torch.tensor([1e9])}
        return {**init(self, x, y, num_clients), **more}

    def stepped(self, clients, state):
        return {**state, **step(self, clients, state), "seen": state["seen"] + 1}

    monkeypatch.setattr(DoubleLoop, "init", begun)
    monkeypatch.setattr(DoubleLoop, "round", stepped)
    assert [*run(CONFIG, RunFolder(tmp_path))][-1]["status"] == "finished"
    state = RunFolder(tmp_path).latest().state
    assert state["seen"].tolist() == [6] * 20
    assert diverged({**state, "sum": state["sum"] * torch.nan}, 1e6) == "sum is not finite"


def test_a_diverged_state_is_never_saved(tmp_path: Path) -> None:
    algorithm = {**ALGORITHM, "lower": {"name": "minibatch_sgd", "steps": 2, "step_size": 50, "batch_size": 4}}
    config = tiny_config("quadratic", rounds=1000, algorithm=algorithm)
    folder = RunFolder(tmp_path / "run")
    records = run(config, folder)
    last = next(record for record in records if "status" in record)
    records.close()
    assert last["status"] == "diverged"
    assert folder.saved_round() < last["round"]
    *_, again = run(config, folder, resume=True)
    assert (again["status"], again["round"], again["x_sha256"]) == ("diverged", last["round"], last["x_sha256"])


def test_a_full_disk_leaves_the_older_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "run")
    list(run(CONFIG, folder))
    saved = folder.saved_round()

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.save(Checkpoint({}, {"round": 99}, {}, {}), keep=1)
    assert folder.saved_round() == saved
    assert not list(folder.checkpoints.glob(".*"))


def test_a_round_that_returns_something_else_than_its_state_is_named(monkeypatch) -> None:
    config = tiny_config("quadratic")
    for wrong in ({"x": torch.zeros(4)}, [], {"x": torch.zeros(4), "y": 3, "smoothness": torch.zeros(())}):
        monkeypatch.setattr(DoubleLoop, "round", lambda self, clients, state, wrong=wrong: wrong)
        with pytest.raises(RunFailed, match=r"DoubleLoop\.round must return the tensors that init made"):
            list(run(config))


def test_figures_are_averaged_over_all_rounds_and_stay_so_after_a_resume(tmp_path: Path) -> None:
    config = tiny_config(record={"every": 1, "averaged": ["hypergradient_norm_sq"], "checkpoint_every": 2})
    records = list(run(config))
    found = [record["hypergradient_norm_sq"] for record in records]
    for k, record in enumerate(records):
        expected = sum(found[:k]) / k if k else None
        assert record["mean_hypergradient_norm_sq"] == (pytest.approx(expected, rel=1e-12) if k else None)
    folder, begun = RunFolder(tmp_path), iter(run(config, RunFolder(tmp_path)))
    for _ in range(4):
        next(begun)
    begun.close()
    again = list(run(config, folder, resume=True))
    assert [record["mean_hypergradient_norm_sq"] for record in again] == [
        record["mean_hypergradient_norm_sq"] for record in records
    ]


def test_an_average_of_nothing_known_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"record\.averaged: unknown figure 'hypergradient'; did you mean"):
        next(run(tiny_config(record={"averaged": ["hypergradient"]})))  # before the first record


def test_records_that_were_handed_out_are_not_kept() -> None:
    """The memory of a long run stays the same."""
    with Loop(tiny_config(rounds=6, record={"every": 1})) as loop:
        assert [record["round"] for record in loop.records()] == [*range(7)]
        assert loop.made == []
