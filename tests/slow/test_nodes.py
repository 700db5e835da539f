"""Sweeps while nodes of their cluster come and go; the nodes are of one machine, see test_cluster.py for real hosts."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from checkout import ROOT
from ray.cluster_utils import Cluster
from small_sweeps import all_records
from tasks import reference

from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.schema import read_sweep

SWEEP = """
rounds: {rounds}
problem: {{name: hyper_representation, backbone: {{name: mlp, width: 32}}, regularization: 0.001}}
data: {{name: digits, partition: {{name: by_digits, digits: 2}}, validation: 0.2}}
clients: {{num_clients: 50, cohort_size: 10, block_size: 2, {clients}}}
algorithm:
  name: double_loop
  step_size: {{grid: {steps}}}
  smoothness: auto
  lower: {{name: minibatch_sgd, steps: 3, step_size: 0.5, batch_size: 16}}
  hypergradient: {{name: phe, terms: 3, batch_size: 16}}
record: {{every: 20, checkpoint_every: 20}}
tune: {{search: grid, metric: upper_loss, mode: min}}
"""
SOON = {  # a lost node is noticed in some seconds, one on a busy machine is not taken for lost
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 4,
}


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": SOON})
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster
    cluster.shutdown()


def start(where: Path, text: str, *words: str) -> subprocess.Popen:
    (where / "a.yaml").write_text(text)
    command = [sys.executable, "-m", "fedmbo_ray.tune", "a.yaml", *words]
    with (where / "said").open("w") as file:
        return subprocess.Popen(command, cwd=where, stdout=file, stderr=file)


def finish(process: subprocess.Popen, where: Path) -> None:
    assert process.wait(timeout=300) == 0, (where / "said").read_text()[-3000:]


def wait_for(process: subprocess.Popen, where: Path, there: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 120
    while not (found := there()):
        assert process.poll() is None, (where / "said").read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def digests(folder: SweepFolder) -> list[str]:
    return [last["x_sha256"] for trial in folder.trials() for last in trial.lasts()]


def actors(node: Any, kind: str) -> list[psutil.Process]:
    """The processes of a node's actors of this kind, by their titles; Tune's trials are `ImplicitFunc`."""
    (raylet,) = node.all_processes["raylet"]
    found = []
    for each in psutil.Process(raylet.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found += [each] if " ".join(each.cmdline()).startswith(f"ray::{kind}") else []
    return found


@pytest.mark.timeout(600)
def test_client_actors_lost_with_their_node_are_replaced(nodes: Cluster, tmp_path: Path) -> None:
    others = [nodes.add_node(num_cpus=2) for _ in range(3)]
    text = SWEEP.format(rounds=200, clients="backend: ray, actors: 3", steps="[0.02]")
    process = start(tmp_path, text, "--out", "apart")
    saved = tmp_path / "apart/trials/00000/seed_000/checkpoints"
    wait_for(process, tmp_path, lambda: len(list(saved.glob("*.npz"))) > 1)
    only_clients = next(each for each in others if actors(each, "ClientActor") and not actors(each, "ImplicitFunc"))
    nodes.remove_node(only_clients, allow_graceful=False)
    assert process.poll() is None
    finish(process, tmp_path)
    alone = read_sweep(tmp_path / "a.yaml", ["clients.backend=in_process"])
    assert digests(SweepFolder(tmp_path / "apart")) == digests(reference(alone, tmp_path / "alone"))


@pytest.mark.timeout(600)
def test_halving_decides_the_same_on_two_nodes_of_which_one_is_lost(nodes: Cluster, tmp_path: Path) -> None:
    kept, lost = nodes.add_node(num_cpus=1), nodes.add_node(num_cpus=1)
    text = SWEEP.format(rounds=160, clients="backend: in_process", steps="[0.01, 0.02, 0.03, 0.04, 0.05, 0.06]")
    words = ["tune.scheduler={name: halving, grace: 20, reduction: 2}"]
    process = start(tmp_path, text, *words, "tune.retries=500", "--out", "a")  # while Ray does not know that it is lost
    folder = SweepFolder(tmp_path / "a")
    wait_for(process, tmp_path, lambda: sum(trial.status == "stopped" for trial in folder.trials()) >= 3)
    (trial,) = wait_for(process, tmp_path, lambda: actors(lost, "ImplicitFunc"))
    trial.suspend()  # so that the node is lost in the middle of a trial, on a machine of any speed
    nodes.remove_node(lost, allow_graceful=False)
    finish(process, tmp_path)
    expected = reference(read_sweep(tmp_path / "a.yaml", words), tmp_path / "alone")
    assert [(trial.status, trial.reason) for trial in folder.trials()] == [
        (trial.status, trial.reason) for trial in expected.trials()
    ]
    assert [trial.status for trial in folder.trials()].count("stopped") == 5
    assert all_records(folder.path) == all_records(expected.path)
    assert folder.best_file.read_bytes() == expected.best_file.read_bytes()
    where = {each["node"][-6:] for trial in folder.trials() for each in trial.system()}
    assert where == {kept.node_id[:6], lost.node_id[:6]}


@pytest.mark.timeout(600)
def test_a_node_that_is_added_takes_part_at_once(nodes: Cluster, tmp_path: Path) -> None:
    first = nodes.add_node(num_cpus=2)
    text = SWEEP.format(rounds=100, clients="backend: in_process", steps="[0.01, 0.02, 0.03]")
    process = start(tmp_path, text, "tune.cpus_per_trial=2", "--out", "a")
    saved = tmp_path / "a/trials/00000/seed_000/checkpoints"
    wait_for(process, tmp_path, lambda: list(saved.glob("*.npz")))
    (trial,) = actors(first, "ImplicitFunc")
    trial.suspend()  # so that nothing but the new node can take the next trial, on a machine of any speed
    added = nodes.add_node(num_cpus=2)
    wait_for(process, tmp_path, lambda: actors(added, "ImplicitFunc"))
    trial.resume()
    finish(process, tmp_path)
    folder = SweepFolder(tmp_path / "a")
    where = {trial.name: {each["node"][-6:] for each in trial.system()} for trial in folder.trials()}
    assert len(where) == 3
    assert where["00000"] == {first.node_id[:6]}
    assert where["00001"] == {added.node_id[:6]}
