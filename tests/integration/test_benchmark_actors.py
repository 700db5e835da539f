"""One actor per client, as a loop by hand would have it, does what the frame does."""

from pathlib import Path

import pytest
import torch

from benchmarks import tasks
from benchmarks.tasks import Setting

DIGITS = Setting("digits")


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_one_step_is_the_same_by_hand_and_with_an_actor_per_client(cluster, tmp_path: Path) -> None:
    makers = tasks.one_step(DIGITS, tmp_path, tmp_path)
    frame, *loops = (makers[name]() for name in ("in_process", "fused by hand", "actor per client"))
    for arm in (frame, *loops):
        arm.run(3)
        arm.close()
    for loop in loops:
        assert close(loop.x, frame.state["x"])
        assert close(loop.y, frame.state["y"])
