"""Figures by client actors: the same bits as in one process, also if an actor dies, and one copy of the test data."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from tasks import TINY_PROBLEMS, tiny_config
from torch import Tensor

from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.backends.ray.client_actor import ClientActor
from fedmbo_ray.backends.ray.pool import RayActors
from fedmbo_ray.backends.ray.transport import CallLink, SocketLink
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.batches import Batch
from fedmbo_ray.federation.execution import Backend
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.hyper_representation import HyperRepresentationProblem
from fedmbo_ray.problems.personal_heads import fields_of
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.evaluation import Evaluation

CONFIG = tiny_config(
    problem={"name": "hyper_representation", "backbone": {"name": "mlp", "width": 30}},
    data={"name": "small_data:many_to_test", "partition": "iid"},
)
PERSONAL = tiny_config(**TINY_PROBLEMS["personal_heads"])


def figures(task: Task, backend: Backend, personal: bool = False) -> dict[str, float]:
    x, y = task.problem.init(stream(0))
    state = {"x": x, "y": y + torch.from_numpy(stream(1).standard_normal((20, len(y)))).to(y) if personal else y}
    return Evaluation(PERSONAL if personal else CONFIG, task, backend).figures(state, 0)


@contextmanager
def pool_of(task: Task, actors: int, **options: Any) -> Iterator[RayActors]:
    pool = RayActors(task, actors, cpus=0.5, **options)
    try:
        yield pool
    finally:
        pool.close()


def test_one_actor_gives_the_bits_of_one_process(cluster: str) -> None:
    task = build_task(CONFIG)
    with pool_of(task, 1) as pool:
        assert isinstance(pool.links[0], SocketLink)
        assert figures(task, pool) == figures(task, InProcess(task))


@dataclass(frozen=True)
class DeadlyOnce(HyperRepresentationProblem):
    """The first process that computes predictions dies of it; later ones write to their part of the test data."""

    mark: Path

    def predictions(self, x: Tensor, y: Tensor, part: Batch) -> Tensor:
        with suppress(FileExistsError):
            self.mark.touch(exist_ok=False)  # of two that come at the same time, one dies
            os.kill(os.getpid(), signal.SIGKILL)
        predictions = super().predictions(x, y, part)
        part.inputs.zero_()
        return predictions


def test_an_actor_that_dies_of_an_evaluation_changes_no_bit(cluster: str, tmp_path: Path) -> None:
    task = build_task(CONFIG)
    deadly = task._replace(problem=DeadlyOnce(**fields_of(task.problem), mark=tmp_path / "mark"))
    with pool_of(deadly, 2) as pool:
        expected = figures(task, InProcess(task))
        for _ in range(3):
            assert figures(deadly, pool) == expected
        assert pool.replaced == 1


def in_object_store(actor: ClientActor) -> bool:
    """Whether an actor reads its test data where all processes of the node do."""
    test = actor.computer.task.test
    assert test is not None
    place = test.inputs.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(word, 16) for word in line.split()[0].split("-"))
        if start <= place < end:
            return "plasma" in line
    return False


def test_actors_that_share_requests_give_the_bits_of_one_process(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three nodes, one of which leads another; every client has a y of its own."""
    monkeypatch.setattr(ClientActor, "node", lambda self: str(os.getpid()))
    task = build_task(PERSONAL)
    with pool_of(task, 3, fan_out=2) as pool:
        assert [type(link) for link in pool.links.values()] == [CallLink, CallLink]
        for personal in (True, False):
            assert figures(task, pool, personal) == figures(task, InProcess(task), personal)
        assert all(ray.get([actor.__ray_call__.remote(in_object_store) for actor in pool.actors]))
