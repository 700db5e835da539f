"""Whether Ray's death is noticed, and what a command says then."""

import os
import shutil
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from ray.exceptions import ActorUnavailableError

from fedmbo_ray.backends.ray import health, waiting
from fedmbo_ray.backends.ray.health import RayHealth, is_listening
from fedmbo_ray.backends.ray.waiting import Patience
from fedmbo_ray.cli.command import guarded
from fedmbo_ray.core.errors import RunFailed, RunStopped
from fedmbo_ray.runs import driver


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def address(listener, monkeypatch) -> str:
    """Of what passes for a cluster's head; Ray itself does not run."""
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    context = SimpleNamespace(gcs_address=address, get_node_id=lambda: "a")
    monkeypatch.setattr(health.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(health.ray, "nodes", lambda: [{"NodeID": "a", "Alive": True}])
    return address


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """The time that is set by the test."""
    clock = Clock()
    for module in (health, waiting):
        monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_head_that_is_away_may_come_back_but_not_after_long(listener, address: str, clock: Clock) -> None:
    found = RayHealth()
    found.look()
    assert is_listening(address)
    listener.close()
    assert not is_listening(address)
    for _ in range(2):  # nobody has looked for long, so nobody knows how long it has been away
        clock.now += 10 * health.AWAY
        found.look()
    clock.now += health.AWAY
    found.look()
    clock.now += 1
    with pytest.raises(RunStopped, match=f"the connection to the Ray cluster at {address} was lost: its head"):
        found.look()


def test_a_head_that_has_come_back_may_go_away_again(address: str, clock: Clock, monkeypatch) -> None:
    found = RayHealth()
    for there in (False, True, False, False):
        monkeypatch.setattr(health, "is_listening", lambda address, there=there: there)
        found.look()
        clock.now += 0.7 * health.AWAY


def test_actors_that_wait_are_announced_after_seconds_and_every_minute(address: str, clock: Clock, monkeypatch) -> None:
    said: list[str] = []
    asked: list[float] = []
    monkeypatch.setattr(waiting, "requests_waiting", lambda: asked.append(clock.now) or [({"CPU": 1.0}, 2)])
    monkeypatch.setattr(waiting.ray, "available_resources", dict)
    patience = Patience(1.0, 0.0, said.append)
    clock.now += 3600
    patience.look(0)
    assert not asked
    patience.begin()
    for seconds, lines in ((1, 0), (waiting.FIRST, 1), (1, 1), (waiting.AGAIN, 2)):
        clock.now += seconds
        patience.look(3)
        assert len(said) == lines
    assert said[0] == "waiting for 2 client actor(s): they ask for 2 CPUs, but 0 are free (others hold the rest)"


def test_a_cluster_that_has_given_this_node_up_is_lost(address: str, monkeypatch) -> None:
    found = RayHealth()
    monkeypatch.setattr(health.ray, "nodes", lambda: [{"NodeID": "a", "Alive": False}])
    with pytest.raises(RunStopped, match="this node has died"):
        found.look()


def test_processes_of_another_ray_are_not_this_ones(address: str, tmp_path: Path) -> None:
    """As `ray.cluster_utils.Cluster` starts them in a notebook."""
    shutil.copy(shutil.which("sleep") or "", tmp_path / "raylet")
    with subprocess.Popen([tmp_path / "raylet", "60"]) as process:
        found = RayHealth()
        process.kill()
    assert found.own == []
    found.look()


def test_a_process_of_this_ones_ray_that_is_gone_is_noticed_at_once(monkeypatch, address: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    monkeypatch.setattr(health, "ray_processes", lambda: [("raylet", process.pid)])
    with pytest.raises(RunStopped, match=r"Ray on this machine has died \(raylet\)"):
        RayHealth()


def test_a_process_of_this_ones_ray_is_dead_before_anybody_waits_for_it(address: str) -> None:
    found = RayHealth()
    process = subprocess.Popen([sys.executable, "-c", ""])
    found.own = [("raylet", psutil.Process(process.pid))]
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(RunStopped, match=r"Ray on this machine has died \(raylet\)"):
        found.look()
    process.wait()
    with pytest.raises(RunStopped):
        found.look()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RunStopped("Ray"), "error: Ray; continue: x\n"),
        (OSError("disk"), "error: disk; continue: x\n"),
        (RunFailed("a kernel"), "error: a kernel\n"),
    ],
)
def test_what_ended_from_outside_can_be_continued(error: Exception, said: str, capsys) -> None:
    def work() -> int:
        raise error

    assert guarded(work, lambda: "; continue: x") == 1
    assert capsys.readouterr().err == said


def test_ctrl_c_while_the_driver_is_restarted_stays_ctrl_c(monkeypatch) -> None:
    def unavailable(calls: object, look: object) -> None:
        raise ActorUnavailableError("it is being restarted", None)

    said, call = [], SimpleNamespace(remote=lambda *words: None)
    actor = SimpleNamespace(stop=call, listen=call)
    maker = SimpleNamespace(options=lambda **how: SimpleNamespace(remote=lambda *words: actor))
    monkeypatch.setattr(driver, "ray", SimpleNamespace(remote=lambda kind: maker, kill=said.append))
    monkeypatch.setattr(driver, "room_on_ray", nullcontext)
    monkeypatch.setattr(driver, "_listen", lambda *words: iter([{"round": 0}]))
    monkeypatch.setattr(driver, "results_of", unavailable)
    config = SimpleNamespace(clients=None, resolved=dict)
    records = driver.run_on_ray(config, SimpleNamespace(path=Path()))
    assert next(records) == {"round": 0}
    with pytest.raises(KeyboardInterrupt):
        records.throw(KeyboardInterrupt)
    assert said == [actor]


LOUD = """
import os, sys
from fedmbo_ray.core.process_state import libraries_silenced, own_stderr
with own_stderr():
    print("one", file=sys.stderr)
    with libraries_silenced():
        os.write(2, b"chatter\\n")
        print("two", file=sys.stderr)
    os.write(2, b"three\\n")
with libraries_silenced():
    os.write(2, b"four\\n")
"""


def test_a_commands_own_words_are_kept_while_libraries_are_silent() -> None:
    done = subprocess.run([sys.executable, "-c", LOUD], capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["one", "two", "three", "four"]


STUCK = """
import time
from fedmbo_ray.cli.command import guarded
from fedmbo_ray.core.interruptions import last_step, leave
import threading
def work():
    with last_step(lambda: print("last step", flush=True)):
        threading.Thread(target=leave, args=(1, "error: Ray is dead")).start()
        time.sleep(60)
guarded(work, lambda: "; continue: x")
"""


def test_a_command_that_waits_for_ever_has_last_words() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "last step\n", "error: Ray is dead; continue: x\n")


@pytest.mark.parametrize("command", [True, False])
def test_only_a_command_ends_when_ray_is_dead_and_kills_what_is_left_of_it(command: bool, monkeypatch) -> None:
    done: list[object] = []

    def look(deep: bool) -> None:
        raise RunStopped("dead")

    found = SimpleNamespace(look=look, own=[("raylet", SimpleNamespace(kill=lambda: done.append("killed")))])
    monkeypatch.setattr(health, "leave", lambda *words: done.append(words))
    monkeypatch.setattr(health, "hints", [str] * command)
    health._watch(found, SimpleNamespace(wait=lambda seconds: False))
    assert done == ["killed", (1, "error: dead")] * command
