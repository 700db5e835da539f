"""A run that is interrupted in the middle of something can be continued, and nothing else in the process suffers."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from tasks import ALGORITHM, TINY_PROBLEMS, tiny_config

from fedmbo_ray import Run, RunFailed
from fedmbo_ray.backends.lockstep import SharedBackends, advance
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.io import read_yaml
from fedmbo_ray.problems.base import Task
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.checkpoint import untimed
from fedmbo_ray.runs.clock import ONE_THREAD
from fedmbo_ray.runs.evaluation import Evaluation
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.loop import Loop, in_process, run
from fedmbo_ray.runs.records import Record
from fedmbo_ray.sweeps.folder import means
from fedmbo_ray.sweeps.trial import records_of

FIGURES = Evaluation.figures


def interrupted_once(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Ctrl-C while the figures of a round are computed."""
    left = [True]

    def figures(self: Evaluation, state: dict, round: int) -> dict[str, float]:
        if round == at and left:
            left.clear()
            raise KeyboardInterrupt
        return FIGURES(self, state, round)

    monkeypatch.setattr(Evaluation, "figures", figures)


def steps(mine: Run) -> None:
    """More than it has rounds."""
    for _ in range(10):
        mine.step()


@pytest.mark.parametrize("at", [0, 3, 6])
@pytest.mark.parametrize("kept", [True, False])
def test_ctrl_c_during_a_record_loses_no_record_and_ends_in_time(at: int, kept: bool, monkeypatch, tmp_path) -> None:
    config = tiny_config(record={"every": 3})
    whole = [*run(config)]
    interrupted_once(monkeypatch, at)
    with Run(config, out=tmp_path / "run" if kept else None) as mine:
        with pytest.raises(KeyboardInterrupt):
            steps(mine)
        steps(mine)
        assert mine.done
    assert list(mine.records["round"]) == [0, 3, 6]
    assert mine.last["x_sha256"] == whole[-1]["x_sha256"]
    assert mine.last["communications"] == whole[-1]["communications"]


class Failing:
    """A run that fails after its first record, while others wait for their clients."""

    def __init__(self, records: Iterator[Record]) -> None:
        self.records, self.asked = records, 0

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        self.asked += 1
        if self.asked == 2:
            raise RunFailed("a kernel raised")
        return next(self.records)


def test_a_seed_that_fails_is_told_and_the_others_end_where_they_are() -> None:
    torch.set_num_threads(2)
    try:
        shared, config = SharedBackends(), tiny_config(problem={"name": "quadratic", "seed": 5})
        seeds = [config.model_copy(update={"seed": seed}) for seed in range(3)]
        others = [run(each, make_backend=shared) for each in seeds[:2]]
        runs: list[Iterator[Record]] = [*others, Failing(run(seeds[2], make_backend=shared))]
        advance(runs)
        with pytest.raises(RunFailed, match="a kernel raised"):
            advance(runs)
        for each in others:
            each.close()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_a_trial_s_run_goes_on_in_a_newer_version_and_is_never_cleared_away(tmp_path: Path) -> None:
    config, folder = tiny_config(record={"every": 2, "checkpoint_every": 2}), RunFolder(tmp_path / "seed_000")
    [*_, last] = run(config)
    with closing(run(config, folder)) as records:
        assert [next(records)["round"] for _ in range(3)] == [0, 2, 4]
    fields = read_yaml(folder.config_file)
    del fields["record"]["loss_samples"], fields["clients"]["availability"]  # as if they were new
    folder.describe(fields)
    (folder.path / "mark").touch()
    other = config.model_copy(update={"seed": 1})
    with pytest.raises(RunFailed, match=r"the config of its trial, but these keys differ: seed; put config\.yaml back"):
        next(records_of(other, folder, in_process))
    assert folder.saved_round() == 4
    [*_, continued] = records_of(config, folder, in_process)
    assert (folder.path / "mark").exists()
    assert continued["x_sha256"] == last["x_sha256"]


def digest(config: RunConfig, task: Task) -> str:
    return [*run(config, task=task)][-1]["x_sha256"]


def test_bits_do_not_depend_on_the_threads_that_torch_has() -> None:
    """A problem keeps what it computes when its task is built; large products differ between one thread and two."""
    config = tiny_config(problem={"name": "quadratic", "upper_dim": 300, "lower_dim": 300}, rounds=1)
    found = set()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.add(digest(config, build_task(config)))
    finally:
        torch.set_num_threads(1)
    assert len(found) == 1


def test_every_thread_computes_alone_and_gets_back_what_it_had() -> None:
    """Torch keeps the number for each thread; a second one enters while the first is within, and leaves last."""
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(1) as other:
            assert other.submit(torch.get_num_threads).result() == 2
            with ONE_THREAD:
                other.submit(ONE_THREAD.__enter__).result()
                assert [torch.get_num_threads(), other.submit(torch.get_num_threads).result()] == [1, 1]
            assert torch.get_num_threads() == 2
            with ONE_THREAD:
                assert torch.get_num_threads() == 1
            other.submit(ONE_THREAD.__exit__, None, None, None).result()
            assert [torch.get_num_threads(), other.submit(torch.get_num_threads).result()] == [2, 2]
    finally:
        torch.set_num_threads(1)


def test_a_thread_that_begins_within_another_s_rounds_leaves_the_usual_number_alone() -> None:
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(1) as other, ThreadPoolExecutor(1) as later:
            with ONE_THREAD:
                other.submit(ONE_THREAD.__enter__).result()
            other.submit(ONE_THREAD.__exit__, None, None, None).result()
            assert later.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(1)


def test_means_of_seeds_that_a_budget_ends_in_different_rounds_end_with_their_ends() -> None:
    def records(rounds: list[int], end: int, loss: float) -> list[Record]:
        made = [{"round": round, "upper_loss": 9.0} for round in rounds]
        return [*made, {"round": end, "upper_loss": loss, "status": "finished"}]

    both = means([records([0, 10, 20, 30, 40], 44, 1.0), records([0, 10, 20, 30, 40], 46, 3.0)])
    assert [each["round"] for each in both] == [0, 10, 20, 30, 40, 46]
    assert both[-1]["upper_loss"] == 2.0
    same = means([records([0, 10], 20, 1.0), records([0, 10], 20, 3.0)])
    assert [each["round"] for each in same] == [0, 10, 20]
    one_is_not_there = means([records([0, 10], 20, 1.0), [{"round": 0, "upper_loss": 9.0}]])
    assert [each["round"] for each in one_is_not_there] == [0]


EXACT = {
    **TINY_PROBLEMS["ridge_head"],
    "record": {"every": 2, "exact_every": 2, "checkpoint_every": 4},
}
DIVERGING = {"algorithm": {**ALGORITHM, "step_size": 50.0}, "record": {"every": 2, "explosion": 3.0}}


def beginning(real: Callable, at: int, happen: Callable[[], None]) -> Callable:
    """A method in whose call number `at` something happens first."""
    calls = count(1)

    def method(*args: Any, **more: Any) -> Any:
        if next(calls) == at:
            happen()
        return real(*args, **more)

    return method


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("changes", [DIVERGING, EXACT])
@pytest.mark.parametrize("method", ["figures", "exact", "_settle", "append", "_save"])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_run_that_is_interrupted_anywhere_ends_as_if_it_were_not(method, at, changes, monkeypatch, tmp_path) -> None:
    """A diverged state is not continued; what exact figures compare with is kept."""
    config = tiny_config(**changes)
    whole, folder = [*run(config)], RunFolder(tmp_path)
    owner = next(each for each in (Evaluation, Loop, RunFolder) if hasattr(each, method))
    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(owner, method, beginning(getattr(owner, method), at, interrupt))
        list(run(config, folder))
    found = [*run(config, folder, resume=True)]
    assert [untimed(record) for record in found] == [untimed(record) for record in whole]
    assert folder.records() == found


@pytest.mark.parametrize("method", ["append", "save", "save_result"])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_no_record_is_made_twice_when_ctrl_c_comes_after_it_was_written(method, at, monkeypatch, tmp_path) -> None:
    real, calls = getattr(RunFolder, method), count(1)

    def followed(*args: Any) -> None:
        real(*args)
        if next(calls) == at:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RunFolder, method, followed)
    with Run(tiny_config(record={"every": 1, "checkpoint_every": 2}), out=tmp_path / "run") as mine:
        while not mine.done:
            with suppress(KeyboardInterrupt):
                mine.step()
        assert list(mine.records["round"]) == [record["round"] for record in RunFolder(tmp_path / "run").records()]
    assert list(mine.records["round"]) == list(range(7))
