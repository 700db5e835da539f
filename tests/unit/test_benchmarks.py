"""The benchmarks run, every arm does its task, and equals are compared; how fast the machine is, no test can say."""

import pytest
import torch

from benchmarks import growth, tasks
from benchmarks.__main__ import main
from benchmarks.arms import FedSGD, Frame
from benchmarks.tasks import Setting
from benchmarks.timing import Result, interleave
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.loop import in_process

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
            "data.name: unknown data set 'nope'; known: digits, mnist",
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
