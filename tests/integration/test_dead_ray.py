"""Commands whose Ray dies, or has no room for them: what they say, and that they go on."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import ray
from forked import Forked, Forks

PROGRESS = re.compile(r"round \d|starting Ray and|\d+ trials, |\d+/\d+ trials|trial \d+ finished")
RUN = ("run", "rounds=100000", "clients.backend=ray", "clients.actors=1", "clients.cpus_per_actor=0.5")
TUNE = ("tune", "tune_configs/quadratic.yaml", "rounds=100000", "tune.samples=1")


def wait_until(true: Callable[[], object], process: Forked) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert process.poll() is None, process.said()
        assert time.monotonic() < deadline, process.said()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("words", "victim"),
    [(RUN, "raylet"), (RUN, "gcs_server"), (TUNE, "gcs_server"), pytest.param(TUNE, "raylet", marks=pytest.mark.slow)],
)
def test_when_ray_dies_one_line_says_so_and_how_to_go_on(words, victim: str, forks: Forks, tmp_path: Path) -> None:
    out = tmp_path / "run"
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    process = forks.start("-m", "fedmbo_ray", *words, "--out", str(out), env=environment)
    wait_until(lambda: [*out.rglob("records.jsonl")], process)
    (found,) = (each for each in psutil.Process(process.pid).children() if each.name() == victim)
    found.send_signal(signal.SIGKILL)
    code, _, err = process.finish()
    said = [line for line in err.splitlines() if not PROGRESS.match(line)]
    hint = f"continue: python -m fedmbo_ray {words[0]} --out {out} --resume"
    assert said == [f"error: Ray on this machine has died ({victim}); {hint}"]
    assert code == 1


@ray.remote
class Holder:
    def there(self) -> bool:
        return True


def test_a_run_without_room_says_what_it_waits_for_and_goes_on(cluster: str, forks: Forks, tmp_path: Path) -> None:
    holder = Holder.options(num_cpus=8).remote()
    assert ray.get(holder.there.remote())
    environment = {**os.environ, "RAY_ADDRESS": cluster}
    words = ("rounds=2", "clients.backend=ray", "clients.actors=2", "clients.cpus_per_actor=0.5")
    process = forks.start("-m", "fedmbo_ray.run", *words, "--out", str(tmp_path / "run"), env=environment)
    line = "waiting for 2 client actor(s): they ask for 1 CPUs, but 0 are free (others hold the rest)\n"
    wait_until(lambda: line in process.said()[1], process)
    ray.kill(holder)
    code, _, err = process.finish()
    assert (code, err.count("waiting for")) == (0, 1)
    assert "finished after 2 rounds" in err


def test_a_run_that_waits_for_room_can_be_interrupted(cluster: str, forks: Forks, tmp_path: Path) -> None:
    holder = Holder.options(num_cpus=8).remote()
    assert ray.get(holder.there.remote())
    words = ("clients.backend=ray", "clients.actors=1", "--out", str(tmp_path / "run"))
    process = forks.start("-m", "fedmbo_ray.run", *words, env={**os.environ, "RAY_ADDRESS": cluster})
    wait_until(lambda: "waiting for 1 client actor(s)" in process.said()[1], process)
    process.send_signal(signal.SIGINT)
    try:
        assert process.finish(30)[0] == 130
    finally:
        ray.kill(holder)
