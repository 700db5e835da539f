"""The benchmarks run, every arm does its task, and equals are compared; how fast the machine is, no test can say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import growth, tasks
from benchmarks.__main__ import main
from benchmarks.arms import FedSGD, Frame
from benchmarks.tasks import Setting
from benchmarks.timing import Result, interleave
from fedmbo_ray.building import build_task
from fedmbo_ray.experiment import in_process

ROOT = Path(__file__).parent.parent
DIGITS = Setting("digits")


class Slow:
    """An arm whose rounds are all the same."""

    def __init__(self) -> None:
        self.rounds = 0

    def run(self, rounds: int) -> None:
        self.rounds += rounds

    def figures(self) -> dict[str, float]:
        return {"rounds": self.rounds}


def test_arms_take_turns() -> None:
    arms = {"a": Slow(), "b": Slow()}
    results = interleave(arms, repetitions=3, seconds=1e-9)
    assert all(len(result.seconds) == 3 for result in results.values())
    assert results["a"].figures == {"rounds": 6}
    assert Result(seconds=[3.0, 1.0, 2.0]).median == 2.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["one_stop"], "unknown part 'one_stop'"),
        (
            ["--data", "nope"],
            "data.name: input should be 'digits', 'mnist', 'fashion_mnist' or 'cifar10', but got 'nope'",
        ),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-3, atol=1e-5)


def test_loops_written_by_hand_do_what_the_frame_does() -> None:
    makers = tasks.fedmbo(DIGITS)
    frame, *loops = (makers[name]() for name in ("in_process", "fused by hand", "fused, derived by hand"))
    for arm in (frame, *loops):
        arm.run(3)
    for loop in loops:
        assert close(loop.x, frame.state["x"])
        assert close(loop.y, frame.state["y"])


def test_one_step_is_the_same_by_hand_and_with_an_actor_per_client(cluster, tmp_path: Path) -> None:
    makers = tasks.one_step(DIGITS, tmp_path, tmp_path)
    frame, *loops = (makers[name]() for name in ("in_process", "fused by hand", "actor per client"))
    for arm in (frame, *loops):
        arm.run(3)
        arm.close()
    for loop in loops:
        assert close(loop.x, frame.state["x"])
        assert close(loop.y, frame.state["y"])


def test_the_plain_fednest_learns_as_the_frame_does() -> None:
    makers = tasks.fednest(DIGITS)
    losses = []
    for name in ("in_process", "plain loop"):
        arm = makers[name]()
        first = arm.figures()["test_loss"]
        arm.run(12)
        losses.append(arm.figures()["test_loss"])
        assert losses[-1] < 0.5 * first
    assert abs(losses[0] - losses[1]) < 0.3


def test_a_crowd_has_as_many_clients_as_asked_for() -> None:
    config = DIGITS.config()
    task = growth.crowd(build_task(config), 100_000)
    assert task.data.num_clients == 100_000
    arm = Frame(config, task, in_process(task), FedSGD(0.1, 8))
    arm.run(2)


@pytest.mark.timeout(1500)  # the first time, it installs two other frameworks
def test_the_short_form_runs_every_arm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--short", "--data", "digits", "--out", str(tmp_path / "out")]
    subprocess.run([*command, "--environments", str(ROOT / ".bench")], check=True, cwd=ROOT)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert set(results) >= {"one_step", "fedmbo", "fednest", "growth", "machine"}
    for part in ("one_step", "fedmbo", "fednest"):
        for name, arm in results[part]["arms"].items():
            assert arm["median_seconds"] > 0, name
            assert arm["figures"]["test_accuracy"] > 0.15, name
    assert (tmp_path / "out" / "speed.png").stat().st_size > 10_000
    if results["one_step"]["missing"]:
        pytest.skip(f"all other arms ran, but {'; '.join(results['one_step']['missing'].values())}")
    assert {"flower", "pfl"} < set(results["one_step"]["arms"])
