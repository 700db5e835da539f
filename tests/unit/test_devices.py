"""Accelerators, which need not be there: torch's `meta` device raises where tensors of two devices meet.

It has shapes and no values, so what a kernel computes is as large as it should be, and nothing else is said of it.
"""

from typing import Any

import numpy as np
import pytest
import torch
from tasks import TINY_PROBLEMS, tiny_config, tiny_task
from test_contract import EVERY, MORE, REAL, config_for
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.backends.ray.accelerator import on_host
from fedmbo_ray.backends.ray.client_actor import Computer
from fedmbo_ray.backends.ray.pool import spec_of
from fedmbo_ray.backends.ray.protocol import SentVectors
from fedmbo_ray.backends.ray.transport import Assignment
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.execution import Block, Job, Seconds, run_block
from fedmbo_ray.federation.reduction import Part
from fedmbo_ray.federation.sent import VersionNumbers
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.flat_module import FlatModule
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.evaluation import Evaluation
from fedmbo_ray.runs.loop import Loop

CPU, META = torch.device("cpu"), torch.device("meta")


class OnMeta:
    """Computes blocks on the meta device; what comes back is zero."""

    description, away = "meta", Seconds()

    def __init__(self, task: Task) -> None:
        self.task = task

    def run(self, job: Job, blocks: list[Block]) -> Part[Tensor]:
        return job.whole((self._block(job, block) for block in blocks), len(blocks))

    def _block(self, job: Job, block: Block) -> tuple[Tensor, ...]:
        outputs = run_block(self.task, job, block, META)
        assert {out.device.type for out in outputs} == {"meta"}
        return tuple(torch.zeros(out.shape, dtype=out.dtype) for out in outputs)

    def close(self) -> None: ...


PAIRS = [(name, REAL.get(name, "quadratic")) for name in EVERY] + MORE
PAIRS += [(name, problem) for problem in TINY_PROBLEMS for name in ("fedmbo", "memfbo")]


@pytest.mark.parametrize(("name", "problem"), list(dict.fromkeys(PAIRS)))
def test_no_kernel_mixes_devices(name: str, problem: str) -> None:
    loop = Loop(config_for(name, problem), make_backend=OnMeta)
    for _ in range(2):
        loop._next()


@pytest.mark.parametrize("name", [name for name in TINY_PROBLEMS if name != "personal_heads"])  # whose owners matter
def test_no_evaluation_mixes_devices(name: str) -> None:
    task = tiny_task(name)
    x, y = task.problem.init(stream(0))
    assert "test_loss" in Evaluation(tiny_config(name), task, OnMeta(task)).figures({"x": x, "y": y}, 0)


class Copies(TorchDispatchMode):
    """Counts what goes to the meta device, and what comes from it: zeros, as there are no values to copy."""

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = list[int](), list[int]()  # bytes of each copy

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and kwargs.get("device") not in (None, args[0].device):
            (self.back if args[0].device == META else self.there).append(args[0].nbytes)
            if args[0].device == META:
                return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        return func(*args, **kwargs)


def computer(task: Task) -> tuple[Computer, SentVectors]:
    return Computer(task, META, room=float("inf")), SentVectors()


def asked(made: tuple[Computer, SentVectors], job: Job, blocks: list[Block], versions: list[int | None]) -> Copies:
    """What is copied when an actor on a GPU answers a request, as the driver sends it."""
    there, sent = made
    assignment = Assignment(spec_of(job), tuple(range(len(blocks))), blocks, len(blocks))
    request = assignment.request(sent.kinds(versions))
    new = [part.numpy() for part, kind in zip(job.shared, request.kinds, strict=True) if kind is None or kind < 0]
    with Copies() as copies:
        reply, arrays = there.compute(request, new + assignment.arrays())
    assert reply.failure is None, reply.failure
    assert all(isinstance(each, np.ndarray) for each in arrays)
    return copies


class Watched:
    """A backend that lets one GPU answer everything as well, and notes what is copied."""

    description, away = "watched", Seconds()

    def __init__(self, task: Task) -> None:
        self.real, self.made, self.copies = InProcess(task), computer(task), list[Copies]()
        self.versions = VersionNumbers()

    def run(self, job: Job, blocks: list[Block]) -> Part[Tensor]:
        versions = [self.versions.of(part) if part.dim() else None for part in job.shared]
        self.copies.append(asked(self.made, job, blocks, versions))
        return self.real.run(job, blocks)

    def close(self) -> None: ...


def test_a_gpu_is_sent_rows_and_little_else_and_answers_in_one_copy() -> None:
    clients = {"num_clients": 20, "cohort_size": 6, "block_size": 3}
    config = config_for("fedmbo", "hyper_representation", **clients)
    task = build_task(config)
    loop = Loop(config, make_backend=Watched, task=task)
    watched: Any = loop.federation.backend
    for _ in range(3):
        loop._next()
    steps, x_bytes = config.algorithm.lower.steps, loop.state["x"].nbytes
    lower, relays = watched.copies[:steps], watched.copies[steps :: steps + 1]
    for copies in watched.copies:
        assert len(copies.back) == 1
    assert sum(each == x_bytes for copies in watched.copies[: steps + 1] for each in copies.there) == 1  # x comes once
    assert len(lower[0].there) == 2 + 2  # x, y, and the rows that each of two blocks draws, for all steps
    for copies in lower[1:]:
        assert len(copies.there) == 1  # y
    for copies in relays:
        assert sum(copies.there) < 20_000


def test_data_and_a_problems_own_tensors_are_on_the_device_once() -> None:
    task = tiny_task("fair_reweighting")
    made, _ = computer(task)
    assert {made.task.data.placed[0].device, made.task.problem.cells.device, made.task.problem.rarities.device} == {
        META
    }
    assert task.data.placed is None
    assert Computer(task, META, room=100.0).task.data.placed is None  # too large
    assert Computer(task, CPU).task.data is task.data


def test_draws_are_the_same_wherever_the_data_are() -> None:
    """A second copy in ordinary memory stands for one on a GPU."""
    task = tiny_task("hyper_representation")
    placed = task.data.on(CPU, float("inf"))
    ids, seeds = np.arange(5), np.arange(5, dtype=np.uint64)
    for draw in (Draw("train", 4), Draw("validation", 3, count=2), Draw("train", None)):
        for one, other in zip(task.data.draw(ids, seeds, draw, CPU), placed.draw(ids, seeds, draw, CPU), strict=True):
            assert torch.equal(one, other)
            assert one.dtype == other.dtype


def test_an_answer_keeps_dtypes_and_shapes_when_it_is_copied_in_one_piece() -> None:
    sent = [
        torch.zeros(2, 3, device=META),
        torch.zeros((), dtype=torch.float64, device=META),
        torch.zeros(0, device=META),
    ]
    with Copies() as copies:
        arrays = on_host(sent)
    assert copies.back == [24 + 8]
    assert [(each.dtype, each.shape) for each in arrays] == [(np.float32, (2, 3)), (np.float64, ()), (np.float32, (0,))]


def test_an_answer_may_be_partly_on_the_host_already() -> None:
    with Copies() as copies:
        arrays = on_host([torch.ones(3), torch.zeros(2, 3, device=META), torch.ones(2)])
    assert copies.back == [24]
    assert [each.shape for each in arrays] == [(3,), (2, 3), (2,)]
    assert [each.sum() for each in arrays] == [3, 0, 2]


def test_buffers_of_a_backbone_follow_x() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)
            self.register_buffer("positions", torch.ones(3))

        def forward(self, inputs: Tensor) -> Tensor:
            return self.layer(inputs + self.positions)

    flat = FlatModule(Positions())
    assert flat(torch.zeros(8, device=META), torch.zeros(5, 3, device=META)).device == META
