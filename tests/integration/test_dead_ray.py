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
from tasks import tiny_task

from fedmbo_ray.api.configs import config_of
from fedmbo_ray.backends.ray import waiting
from fedmbo_ray.backends.ray.pool import RayActors
from fedmbo_ray.runs.driver import run_on_ray
from fedmbo_ray.runs.folder import RunFolder

PROGRESS = re.compile(r"round \d|starting Ray and|\d+ trials, |\d+/\d+ trials|trial \d+ finished")
RUN = ("run", "rounds=100000", "clients.backend=ray", "clients.actors=1", "clients.cpus_per_actor=0.5")
WORDS = ("rounds=2", "clients.backend=ray", "clients.actors=2", "clients.cpus_per_actor=0.5")
TUNE = ("tune", "tune_configs/quadratic.yaml", "rounds=100000", "tune.samples=1")


def wait_until(true: Callable[[], object], process: Forked) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert process.poll() is None, process.said()
        assert time.monotonic() < deadline, process.said()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("words", "victim"),
    [
        (RUN, "raylet"),
        (TUNE, "gcs_server"),
        pytest.param(RUN, "gcs_server", marks=pytest.mark.slow),
        pytest.param(TUNE, "raylet", marks=pytest.mark.slow),
    ],
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


def test_actors_that_were_waited_for_in_vain_take_no_room_later(cluster: str, monkeypatch) -> None:
    holder = Holder.options(num_cpus=8).remote()
    assert ray.get(holder.there.remote())
    monkeypatch.setattr(waiting, "FIRST", 0.1)

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as error:
        RayActors(tiny_task("quadratic"), actors=2, say=interrupt)
    ray.kill(holder)
    other = Holder.options(num_cpus=8).remote()
    assert ray.get(other.there.remote(), timeout=60)
    assert error.traceback  # which IPython also keeps, with the actors' handles
    ray.kill(other)


def test_a_run_without_room_says_what_it_waits_for_and_goes_on(cluster: str, tmp_path: Path) -> None:
    holder = Holder.options(num_cpus=8).remote()
    assert ray.get(holder.there.remote())
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        ray.kill(holder)

    config = config_of(None, WORDS, {}, None, False)
    *_, last = run_on_ray(config, RunFolder(tmp_path / "run"), say=say)
    assert said == ["waiting for 2 client actor(s): they ask for 1 CPUs, but 0 are free (others hold the rest)"]
    assert last["status"] == "finished"
