"""The Ray backend under stress: dead actors, failing kernels, actors elsewhere, too little room, fractions of GPUs."""

import os
import signal
import time

import numpy as np
import psutil
import pytest
import ray
import torch
from tasks import federation, tiny_config, tiny_task

from fedmbo_ray.backends.ray.client_actor import ClientActor
from fedmbo_ray.backends.ray.placement import cluster_nodes, require_room
from fedmbo_ray.backends.ray.pool import RayActors, stored_test
from fedmbo_ray.backends.ray.transport import CallLink, SocketLink
from fedmbo_ray.core.errors import ConfigError, RunFailed
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.problems.oracles import grad_y_lower
from fedmbo_ray.runs.build import build_federation

TRAIN = Draw("train", 4)


def actor_processes() -> list[int]:
    """The processes of client actors that this test session has started."""
    mine = psutil.Process().children(recursive=True)
    return [process.pid for process in mine if any("ClientActor" in word for word in process.cmdline())]


def mean_gradient(backend, task, repeats: int = 1, seed: int = 0) -> torch.Tensor:
    x, y = task.problem.init(stream(0))
    fed = federation(task, 12, backend=backend, block_size=2)
    for r in range(repeats):
        clients = fed.clients(stream(seed, r))
        y = y - 0.01 * clients.mean(grad_y_lower, clients.sample(), x, y, draw=TRAIN)
    return y


@pytest.fixture
def task(cluster):
    return tiny_task("hyper_representation")


def test_a_killed_actor_is_replaced_and_no_bit_changes(task) -> None:
    pool = RayActors(task, actors=2, cpus=0.5)
    try:
        assert isinstance(pool.links[0], SocketLink)
        expected = mean_gradient(federation(task, 12).backend, task, repeats=30)
        assert torch.equal(expected, mean_gradient(pool, task, repeats=30))
        (victim, *_) = actor_processes()
        os.kill(victim, signal.SIGKILL)
        assert torch.equal(expected, mean_gradient(pool, task, repeats=30))
        assert pool.replaced == 1
        for victim in actor_processes():  # all of them at once
            os.kill(victim, signal.SIGKILL)
        assert torch.equal(expected, mean_gradient(pool, task, repeats=30))
        assert len(pool.links) == 2
    finally:
        pool.close()


def test_a_long_path_to_temporary_files_is_no_obstacle(task, tmp_path, monkeypatch) -> None:
    long = tmp_path / ("long" * 25)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    pool = RayActors(task, actors=1, cpus=0.5)
    try:
        assert torch.equal(mean_gradient(federation(task, 12).backend, task), mean_gradient(pool, task))
    finally:
        pool.close()
    assert not list(long.iterdir())


def slow_gradient(problem, batch, x, y):
    """A kernel that takes long enough to be killed while it runs."""
    time.sleep(0.3)
    return grad_y_lower(problem, batch, x, y)


def test_an_actor_killed_in_the_middle_of_a_block(task) -> None:
    pool = RayActors(task, actors=2, cpus=0.5)
    x, y = task.problem.init(stream(0))
    try:
        fed = federation(task, 8, backend=pool, block_size=2)
        expected = (
            federation(task, 8, block_size=2).clients(stream(1)).mean(slow_gradient, np.arange(8), x, y, draw=TRAIN)
        )
        victim = actor_processes()[0]
        killer = psutil.Popen(["sh", "-c", f"sleep 0.2; kill -9 {victim}"])
        assert torch.equal(expected, fed.clients(stream(1)).mean(slow_gradient, np.arange(8), x, y, draw=TRAIN))
        killer.wait()
        assert pool.replaced == 1
    finally:
        pool.close()


def deadly(problem, batch, x, y):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_kernel_that_kills_every_actor_ends_the_run(task) -> None:
    pool = RayActors(task, actors=2, cpus=0.5)
    x, y = task.problem.init(stream(0))
    try:
        with pytest.raises(RunFailed, match="client actors keep dying"):
            federation(task, 4, backend=pool).clients(stream(1)).mean(deadly, np.arange(4), x, y, draw=TRAIN)
    finally:
        pool.close()


def broken(problem, batch, x, y):
    raise ZeroDivisionError("my own mistake")


def test_what_a_kernel_raises_reaches_its_author(task) -> None:
    pool = RayActors(task, actors=2, cpus=0.5)
    x, y = task.problem.init(stream(0))
    try:
        clients = federation(task, 4, backend=pool, block_size=1).clients(stream(1))
        with pytest.raises(RunFailed, match="my own mistake"):
            clients.mean(broken, np.arange(4), x, y, draw=TRAIN)
        # the next job is not given what was still on its way when the first one failed
        assert torch.equal(mean_gradient(pool, task), mean_gradient(federation(task, 12).backend, task))
    finally:
        pool.close()


def test_kernels_that_only_this_process_knows(task) -> None:
    scale = 3.0
    pool = RayActors(task, actors=1, cpus=0.5)
    x, y = task.problem.init(stream(0))
    try:
        args = (lambda problem, batch, x, y: scale * y, np.arange(4), x, y)
        assert torch.equal(federation(task, 4, backend=pool).clients(stream(1)).map(*args, draw=TRAIN)[2], 3 * y)
    finally:
        pool.close()


def test_actors_on_another_node_are_reached_by_calls_and_give_the_same_bits(task, monkeypatch) -> None:
    monkeypatch.setattr(ClientActor, "node", lambda self: "elsewhere")
    pool = RayActors(task, actors=2, cpus=0.5)
    try:
        assert isinstance(pool.links[0], CallLink)
        expected = mean_gradient(federation(task, 12).backend, task, repeats=10)
        assert torch.equal(expected, mean_gradient(pool, task, repeats=10))
        os.kill(actor_processes()[0], signal.SIGKILL)
        assert torch.equal(expected, mean_gradient(pool, task, repeats=10))
        assert pool.replaced == 1
    finally:
        pool.close()


@pytest.mark.slow
def test_actors_of_many_nodes_share_requests_and_join_answers_on_the_way(task, monkeypatch) -> None:
    """Six nodes, at most two calls at a time: the driver leads 0 and 4, 0 leads 1 and 2, 2 leads 3, 4 leads 5."""
    monkeypatch.setattr(ClientActor, "node", lambda self: str(os.getpid()))
    pool = RayActors(task, actors=6, cpus=0.5, fan_out=2)
    try:
        assert list(pool.links) == [0, 4]
        assert {leader: led for leader, led in pool.led.items() if led} == {0: [1, 2], 2: [3], 4: [5]}
        expected = mean_gradient(federation(task, 12).backend, task, repeats=20)
        assert torch.equal(expected, mean_gradient(pool, task, repeats=20))
        pids = ray.get([actor.node.remote() for actor in pool.actors])
        for dead in (3, 2, 4):  # one at the end of the tree, one in its middle, one that the driver talks to
            os.kill(int(pids[dead]), signal.SIGKILL)
            assert torch.equal(expected, mean_gradient(pool, task, repeats=20))
        assert pool.replaced == 3
        deadline = time.monotonic() + 60
        while pool.starting and time.monotonic() < deadline:
            assert torch.equal(expected, mean_gradient(pool, task, repeats=20))
        everyone = ray.get([actor.__ray_call__.remote(lambda self: len(self.members)) for actor in pool.actors])
        assert everyone == [2, 0, 1, 0, 1, 0]
        clients = federation(task, 12, backend=pool, block_size=2).clients(stream(1))
        with pytest.raises(RunFailed, match="my own mistake"):
            clients.mean(broken, np.arange(12), *task.problem.init(stream(0)), draw=TRAIN)
        assert torch.equal(expected, mean_gradient(pool, task, repeats=20))
    finally:
        pool.close()


@pytest.mark.slow
def test_a_replacement_that_dies_before_it_connects_is_replaced_too(task, monkeypatch) -> None:
    pool = RayActors(task, actors=2, cpus=0.5)
    started, start = [], pool._start

    def start_dying(place):
        actor = start(place)
        started.append(actor)
        if len(started) <= 2:
            ray.kill(actor)
        return actor

    monkeypatch.setattr(pool, "_start", start_dying)
    try:
        expected = mean_gradient(federation(task, 12).backend, task, repeats=60)
        for victim in actor_processes():
            os.kill(victim, signal.SIGKILL)
        assert torch.equal(expected, mean_gradient(pool, task, repeats=60))
        assert len(started) == 4
    finally:
        pool.close()


def test_a_vector_that_is_written_to_is_sent_again(task) -> None:
    pool = RayActors(task, actors=1, cpus=0.5)
    try:
        results = []
        for backend in (pool, federation(task, 4).backend):
            large = torch.ones(10_000, dtype=torch.float64)
            for r in range(3):
                clients = federation(task, 4, backend=backend).clients(stream(r))
                large -= 0.1 * clients.mean(echo, np.arange(4), large, draw=TRAIN)
            results.append(large)
        assert torch.equal(*results)
    finally:
        pool.close()


def echo(problem, batch, v):
    return v * batch.weights.sum()


def added(problem, batch, *vectors):
    return sum(vectors) * batch.weights.sum()


def test_a_job_may_have_more_large_vectors_than_actors_usually_keep(task, monkeypatch) -> None:
    """Two actors that the driver talks to, one of which leads a third; some vectors stay, others are new."""
    monkeypatch.setattr(ClientActor, "node", lambda self: str(os.getpid()))
    pool = RayActors(task, actors=3, cpus=0.5, fan_out=2)
    vectors = [torch.full((10_000,), float(i), dtype=torch.float64) for i in range(6)]
    try:
        assert len(pool.links) == 2
        for r in range(4):
            results = [
                federation(task, 12, backend=backend, block_size=2)
                .clients(stream(r))
                .mean(added, np.arange(12), *vectors, draw=TRAIN)
                for backend in (pool, federation(task, 12).backend)
            ]
            assert torch.equal(*results)
            vectors = [*vectors[:1], *(vector + 1 for vector in vectors[1:])]
        assert pool.replaced == 0
    finally:
        pool.close()


def test_x_is_sent_once_per_round_and_actor(task, monkeypatch) -> None:
    wide = tiny_config(
        "hyper_representation", problem={"name": "hyper_representation", "backbone": {"name": "mlp", "width": 200}}
    )
    from fedmbo_ray.runs.build import build_task

    big = build_task(wide)
    pool = RayActors(big, actors=2, cpus=0.5)
    sent: list[int] = []
    from fedmbo_ray.backends.ray.messages import Connection

    original = Connection.send
    monkeypatch.setattr(
        Connection,
        "send",
        lambda self, head, arrays: (sent.extend(a.nbytes for a in arrays), original(self, head, arrays))[1],
    )
    try:
        fed = build_federation(wide, big, pool)
        state = wide.algorithm.init(*big.problem.init(stream(0)), big.data.num_clients)
        for k in range(3):
            state = wide.algorithm.round(fed.clients(stream(k), k), state)
        large = [size for size in sent if size == state["x"].nbytes]
        assert 3 <= len(large) <= 3 * 2
    finally:
        pool.close()


def test_data_reach_the_object_store_once(task) -> None:
    pool = RayActors(task, actors=3, cpus=0.5)
    try:
        assert all(isinstance(argument, ray.ObjectRef) for argument in pool.args[:3])
    finally:
        pool.close()


def test_no_room_is_said_at_once(cluster) -> None:
    with pytest.raises(
        ConfigError, match=r"clients\.actors: 100 actors of 1 CPU and 0 GPU must fit the cluster, but it has 8 CPU"
    ):
        require_room(100, 1.0, 0.0, cluster_nodes())
    with pytest.raises(ConfigError, match="room for 8"):
        require_room(9, 0.1, 0.25, cluster_nodes())
    require_room(8, 0.1, 0.25, cluster_nodes())


@pytest.mark.slow
def test_fractions_of_gpus_are_placed_as_asked(task) -> None:
    """Eight actors of a quarter GPU fill two (faked) GPUs, four on each, and choose their device by what they got."""
    make = ray.remote(ClientActor).options(num_cpus=0.1, num_gpus=0.25)
    actors = [make.remote(*task[:2], stored_test(task)) for _ in range(8)]
    found = ray.get(
        [actor.__ray_call__.remote(lambda self: (ray.get_gpu_ids(), self.computer.device.type)) for actor in actors]
    )
    assert sorted(ids[0] for ids, _ in found) == [0] * 4 + [1] * 4
    assert {device for _, device in found} == {"cuda"}
    for actor in actors:
        ray.kill(actor)
