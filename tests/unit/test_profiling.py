"""Where the time goes, seen from outside."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from tasks import tiny_config

from fedmbo_ray.checkpoints import RunFolder
from fedmbo_ray.experiment import run
from fedmbo_ray.profiling import Profile, sampled
from fedmbo_ray.run import profiled


def busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def idle(seconds: float) -> None:
    time.sleep(seconds)


def test_time_is_found_where_it_was_spent() -> None:
    with sampled() as stacks:
        busy(0.3)
        idle(0.1)
    spent = {
        name: sum(seconds for stack, seconds in stacks.items() if f"test_profiling.py:{name}" in stack)
        for name in ("busy", "idle")
    }
    assert 0.2 < spent["busy"] < 0.6
    assert 0.05 < spent["idle"] < spent["busy"]


def test_unwanted_profiles_cost_nothing() -> None:
    with sampled(False) as stacks:
        busy(0.01)
    assert stacks == {}


def text(profile: Profile) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(*profile.tables())
    return console.export_text()


def test_a_stack_is_named_after_what_it_does(tmp_path: Path) -> None:
    stacks = {
        "a.py:main;experiment.py:records;lower/fedavg.py:solve;federation.py:_communicate;blocks.py:run_block": 0.6,
        "a.py:main;experiment.py:records;lower/fedavg.py:solve;federation.py:_communicate;x.py:f": 0.1,
        "a.py:main;experiment.py:records;experiment.py:_record": 0.2,
        "a.py:main;loading.py:load": 100.0,
    }
    actor = {"backends/client_actor.py:serve;backends/messages.py:receive;backends/messages.py:_first": 1.0}
    profile = Profile({"driver": stacks, "client actor 1": actor}, rounds=10)
    profile.write(tmp_path / "profile.json")
    shown = text(Profile.read(tmp_path / "profile.json"))
    lines = {line.split("│")[1].strip(): line for line in shown.splitlines() if line.startswith("│")}
    assert "60.00 (67 %)" in lines["computing"]
    assert "10.00 (11 %)" in lines["sampling clients, cutting blocks, counting"]
    assert "100.00 (100 %)" in lines["waiting for the driver"]
    assert "70.00 (78 %)" in lines["lower/fedavg.py:solve"]
    page = profile.flame_graph()
    assert "blocks.py:run_block: 0.6 s, 60 ms per round" in page
    assert "starting and stopping" in page
    assert "loading.py" not in page


def test_a_profiled_run_gives_the_same_records(tmp_path: Path) -> None:
    config = tiny_config("hyper_representation", rounds=20)
    folder = RunFolder(tmp_path)
    last = [*profiled(run(config), folder)][-1]
    plain = [*run(config)][-1]
    assert last["x_sha256"] == plain["x_sha256"]
    assert "computing" in text(Profile.read(folder.profile_file))


@pytest.mark.parametrize("backend", ["in_process", "ray"])
def test_the_command_shows_tables_and_draws(backend: str, tmp_path: Path) -> None:
    words = ["rounds=40", f"clients.backend={backend}", "clients.actors=2", "clients.cpus_per_actor=0.5"]
    command = [sys.executable, "-m", "fedmbo_ray.run", *words, "--profile", "--out", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
    assert ended.returncode == 0, ended.stderr
    wanted = ("waiting for clients", "client actor 2") if backend == "ray" else ("computing", "this process")
    assert all(each in ended.stderr for each in wanted)
    assert (tmp_path / "profile.html").read_text().startswith("<!doctype html>")
