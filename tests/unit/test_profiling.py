"""Where the time goes, seen from outside."""

import threading
import time
from pathlib import Path

from rich.console import Console
from tasks import tiny_config

from fedmbo_ray.cli.run import profiled
from fedmbo_ray.core.sampling import Sampler, sampled
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.loop import run
from fedmbo_ray.runs.profile import Profile


def seen(function: str) -> bool:
    """Whether the sampler that runs has looked while this function was at work."""
    (sampler,) = (each for each in threading.enumerate() if isinstance(each, Sampler))
    return any(f"test_profiling.py:{function}" in stack for stack in list(sampler.seconds))


def busy() -> None:
    while not seen("busy"):
        pass


def idle() -> None:
    while not seen("idle"):
        time.sleep(0.01)


def test_time_is_found_where_it_was_spent() -> None:
    begun = time.perf_counter()
    with sampled() as stacks:
        busy()
        idle()
    elapsed = time.perf_counter() - begun
    assert 0 < sum(stacks.values()) <= elapsed
    for name in ("busy", "idle"):
        here = "test_profiling.py:test_time_is_found_where_it_was_spent;unit/test_profiling.py:"
        assert any(f"{here}{name}" in stack for stack in stacks)


def test_unwanted_profiles_cost_nothing() -> None:
    with sampled(False) as stacks:
        assert not any(isinstance(each, Sampler) for each in threading.enumerate())
    assert stacks == {}


def text(profile: Profile) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(*profile.tables())
    return console.export_text()


def test_a_stack_is_named_after_what_it_does(tmp_path: Path) -> None:
    solving = "a.py:main;runs/loop.py:records;methods/lower/fedavg.py:solve"
    stacks = {
        f"{solving};federation/exchange.py:communicate;federation/execution.py:run_block": 0.6,
        f"{solving};federation/exchange.py:communicate;x.py:f": 0.1,
        "a.py:main;runs/loop.py:records;runs/loop.py:_record;federation/execution.py:run_block": 0.2,
        "a.py:main;loading.py:load": 100.0,
    }
    actor = {"backends/ray/client_actor.py:serve;backends/ray/messages.py:receive;backends/ray/messages.py:_first": 1.0}
    profile = Profile({"driver": stacks, "client actor 1": actor}, rounds=10)
    profile.write(tmp_path / "profile.json")
    shown = text(Profile.read(tmp_path / "profile.json"))
    lines = {line.split("│")[1].strip(): line for line in shown.splitlines() if line.startswith("│")}
    assert "60.00 (67 %)" in lines["computing"]
    assert "20.00 (22 %)" in lines["evaluating and recording"]
    assert "10.00 (11 %)" in lines["sampling clients, cutting blocks, counting"]
    assert "100.00 (100 %)" in lines["waiting for the driver"]
    assert "70.00 (78 %)" in lines["methods/lower/fedavg.py:solve"]
    page = profile.flame_graph()
    assert "federation/execution.py:run_block: 0.6 s, 60 ms per round" in page
    assert "starting and stopping" in page
    assert "loading.py" not in page


def test_a_profiled_run_gives_the_same_records(tmp_path: Path) -> None:
    config = tiny_config("hyper_representation", rounds=20)
    folder = RunFolder(tmp_path)
    last = [*profiled(run(config), folder)][-1]
    plain = [*run(config)][-1]
    assert last["x_sha256"] == plain["x_sha256"]
    assert "computing" in text(Profile.read(folder.profile_file))
