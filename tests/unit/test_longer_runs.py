"""Runs that go on beyond their first end: the same as if they had been longer from the start."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
from tasks import ALGORITHM, tiny_config

from fedmbo_ray import ConfigError, RunConfig, run_experiment
from fedmbo_ray.cli.run import main
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.loop import run


def without_times(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if not key.endswith("_seconds")} for record in records]


def config(every: int = 4, **changes: Any) -> RunConfig:
    return tiny_config(record={"every": every, "checkpoint_every": 5, "averaged": ["lower_error_sq"]}, **changes)


def same(folder: Path, expected: Path) -> None:
    """Records, result and final state of a run are those of another."""
    here, there = RunFolder(folder), RunFolder(expected)
    assert without_times(here.records()) == without_times(there.records())
    assert here.result_file.read_bytes() == there.result_file.read_bytes()
    mine, other = here.latest(), there.latest()
    assert mine is not None
    assert other is not None
    assert all(torch.equal(mine.state[name], other.state[name]) for name in other.state)


@pytest.mark.parametrize("every", [1, 4, 5])
def test_a_finished_run_goes_on_as_if_it_had_always_been_longer(every: int, tmp_path: Path) -> None:
    run_experiment(config(every, rounds=12), out=tmp_path / "whole")
    run_experiment(config(every, rounds=5), out=tmp_path / "grown")
    before = (tmp_path / "grown" / "result.npz").read_bytes()
    for rounds in (8, 12):
        grown = run_experiment(out=tmp_path / "grown", resume=True, rounds=rounds)
        assert (grown.round, grown.config.rounds) == (rounds, rounds)
    same(tmp_path / "grown", tmp_path / "whole")
    assert (tmp_path / "grown" / "result.npz").read_bytes() != before


@pytest.mark.parametrize("stopped", [1, 3])
def test_a_stopped_run_goes_on_longer(stopped: int, tmp_path: Path) -> None:
    run_experiment(config(rounds=9), out=tmp_path / "whole")
    made = []
    list(
        run(
            config(rounds=6),
            RunFolder(tmp_path / "grown"),
            stop=lambda: len(made) == stopped,
            tick=lambda *at: made.append(at),
        )
    )
    run_experiment(out=tmp_path / "grown", resume=True, rounds=9)
    same(tmp_path / "grown", tmp_path / "whole")


def test_a_larger_budget_continues_a_run(tmp_path: Path) -> None:
    run_experiment(config(rounds=None, budget={"communications": 110}), out=tmp_path / "whole")
    run_experiment(config(rounds=None, budget={"communications": 40}), out=tmp_path / "grown")
    run_experiment("budget.communications=110", out=tmp_path / "grown", resume=True)
    same(tmp_path / "grown", tmp_path / "whole")
    rounds = RunFolder(tmp_path / "whole").records()[-1]["round"]
    last = run_experiment(out=tmp_path / "grown", resume=True, budget=None, rounds=rounds + 2).last
    *_, expected = run(config(rounds=rounds + 2))
    assert last["x_sha256"] == expected["x_sha256"]
    assert "ended_by" not in last


def test_the_command_does_it_and_says_why_not(tmp_path: Path) -> None:
    words = ["clients.num_clients=20", "record.every=2"]

    def command(*more: str) -> tuple[int, str, str]:
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            code = main(list(more))
        return code, out.getvalue(), err.getvalue()

    command(*words, "rounds=3", "--out", str(tmp_path / "grown"))
    code, out, err = command("rounds=6", "--resume", "--json", "--out", str(tmp_path / "grown"))
    assert code == 0, err
    assert "continuing after round 3" in err
    command(*words, "rounds=6", "--out", str(tmp_path / "whole"))
    same(tmp_path / "grown", tmp_path / "whole")
    assert json.loads(out)["round"] == 6
    before = (tmp_path / "grown" / "config.yaml").read_bytes()
    for word, line in (
        ("rounds=4", "error: rounds: must be more than what the run has already used, 6, but got 4"),
        ("budget.communications=3", "error: budget.communications: must be more than what the run has already used"),
        ("seed=1", "error: resume must keep the run's config, but these keys differ: seed; only"),
    ):
        code, _, err = command(word, "--resume", "--out", str(tmp_path / "grown"))
        assert code == 2
        assert err.startswith(line)
        assert len(err.splitlines()) == 1
    assert (tmp_path / "grown" / "config.yaml").read_bytes() == before
    same(tmp_path / "grown", tmp_path / "whole")


def test_a_step_size_that_depends_on_the_rounds_keeps_them(tmp_path: Path) -> None:
    fixed = config(rounds=4, algorithm={**ALGORITHM, "step_size": {"name": "sqrt_speedup", "scale": 0.1}})
    run_experiment(fixed, out=tmp_path)
    line = r"rounds: must stay 4, since algorithm\.step_size depends on it: the rounds so far would have been different"
    with pytest.raises(ConfigError, match=line):
        run_experiment(out=tmp_path, resume=True, rounds=8)
    assert run_experiment(out=tmp_path, resume=True).status == "finished"
