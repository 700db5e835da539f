"""Runs as Python objects on client actors: a Ray that was not there is gone afterwards, and nothing else is changed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os, signal, sys, torch
torch.set_num_threads(2)

def surroundings():
    signals = [repr(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    return [dict(os.environ), signals, repr(sys.excepthook), repr(sys.stdout), torch.get_num_threads()]

before = surroundings()
from fedmbo_ray import ConfigError, Run, run_experiment

words = ["rounds=4", "record.every=2", "clients.num_clients=20", "clients.cpus_per_actor=0.5"]
here = run_experiment(*words)
there = run_experiment(*words, "clients.backend=ray", out=sys.argv[1])
with Run(*words, "clients.backend=ray", "clients.actors=3") as stepped:
    stepped.step()
    import ray
    from fedmbo_ray.runs.driver import in_cluster
    running, elsewhere = ray.is_initialized(), [in_cluster()]
    stepped.finish()
try:
    run_experiment("clients.backend=ray", "clients.gpus_per_actor=3")
except ConfigError as error:
    refused = str(error)
after = surroundings()
found = {
    "bits": [[run.last["x_sha256"], run.last["y_sha256"]] for run in (here, there, stepped)],
    "backends": [run.last["backend"] for run in (here, there, stepped)],
    "rounds": [list(map(int, run.records["round"])) for run in (here, there, stepped)],
    "ray": [running, ray.is_initialized()],
    "changed": [old == new for old, new in zip(before, after)],
    "refused": refused,
}
ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
own = run_experiment(*words, "clients.backend=ray")
found["elsewhere"] = [*elsewhere, in_cluster()]
found["own"] = [ray.is_initialized(), own.last["x_sha256"]]
print(json.dumps(found))
"""


@pytest.mark.timeout(600)  # Ray is started three times
def test_on_ray_a_run_has_the_same_bits_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "run")], capture_output=True, text=True, env=environment
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["bits"] == [found["bits"][0]] * 3
    assert found["backends"] == ["in_process", "ray, 2 actor(s) by socket", "ray, 3 actor(s) by socket"]
    assert found["rounds"] == [[0, 2, 4]] * 3
    assert found["ray"] == [True, False]
    assert found["changed"] == [True] * 5
    assert found["refused"].startswith("clients.actors: 2 actors of 1 CPU and 3 GPU must fit")
    assert found["own"] == [True, found["bits"][0][0]]  # a Ray that was there stays
    assert found["elsewhere"] == [False, True]  # only a Ray that was started by others may have other machines
    assert (tmp_path / "run" / "result.npz").exists()
