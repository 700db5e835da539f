"""The command that runs one config: in real processes, with real signals, on a Ray of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
from checkout import ROOT
from forked import Forked, Forks
from quick_runs import QUICK, bits, last_record, run

RAY = ["clients.backend=ray", "clients.cpus_per_actor=0.5"]


Start = Callable[..., Forked]


@pytest.fixture
def start(forks: Forks) -> Start:
    return partial(forks.start, "-m", "fedmbo_ray.run")


def last_of(process: Forked) -> dict:
    code, out, err = process.finish()
    assert code == 0, err
    return json.loads(out)


LONGER = ("rounds=500", QUICK[1], QUICK[3])  # so long that a signal comes before the end


@pytest.fixture(scope="session")
def longer_reference(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return last_record(*LONGER, "--out", str(tmp_path_factory.mktemp("reference") / "run"))


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The last record of an undisturbed run in one process."""
    return last_record(*QUICK, "--out", str(tmp_path_factory.mktemp("reference") / "run"))


def timeless(said: str) -> str:
    """Without what differs from one run to the next: how long it took."""
    return re.sub(r'"(wall|cpu)_seconds": [0-9.]+|[0-9.]+ rounds/s|ETA .*', "", said)


def wait_for_round(out: Path, round: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        lines = (out / "records.jsonl").read_text().splitlines() if (out / "records.jsonl").exists() else []
        if any(json.loads(line)["round"] >= round for line in lines if line.endswith("}")):
            return
        time.sleep(0.05)
    raise TimeoutError(f"round {round} was not reached")


def processes_of(process: Forked, title: str) -> list[int]:
    family = psutil.Process(process.pid).children(recursive=True)
    return [each.pid for each in family if any(title in word for word in each.cmdline())]


def test_json_prints_the_last_record_alone(start: Start, tmp_path: Path) -> None:
    """Also: a process that is forked says and does what one that is started does."""
    words = [*QUICK, "--json", "--out", "run"]
    (tmp_path / "forked").mkdir()
    forked = start(*words, cwd=tmp_path / "forked")
    command = [sys.executable, "-m", "fedmbo_ray.run", *words]
    fresh = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    code, out, err = fresh.returncode, fresh.stdout.decode(), fresh.stderr.decode()
    record = json.loads(out)
    assert code == 0
    assert forked.wait() == code
    assert [timeless(text) for text in forked.said()] == [timeless(text) for text in (out, err)]
    assert "finished after 30 rounds" in err
    lines = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 5, 10, 15, 20, 25, 30]
    assert lines[-1] == record
    wanted = "round communications samples data_epochs floats_up floats_down lower_loss upper_loss test_loss"
    assert set(wanted.split()) | {"test_accuracy", "wall_seconds", "status", "x_sha256", "y_sha256"} <= set(record)
    assert all("status" not in line for line in lines[:-1])
    assert (tmp_path / "run" / "config.yaml").exists()
    assert len(list((tmp_path / "run" / "checkpoints").glob("*.npz"))) == 2


@pytest.mark.parametrize("actors", [3])
def test_ray_gives_the_bits_of_in_process(actors: int, start: Start, reference: dict, tmp_path: Path) -> None:
    words = [*QUICK, *RAY, f"clients.actors={actors}", "--json", "--out", str(tmp_path / "run")]
    record = last_of(start(*words))
    assert bits(record) == bits(reference)
    same = [key for key in reference if key not in ("wall_seconds", "cpu_seconds", "backend")]
    assert {key: record[key] for key in same} == {key: reference[key] for key in same}
    assert (reference["backend"], record["backend"]) == ("in_process", f"ray, {actors} actor(s) by socket")


def test_clients_and_driver_are_killed_and_the_run_goes_on_by_itself(
    start: Start, reference: dict, tmp_path: Path
) -> None:
    process = start(*QUICK, *RAY, "clients.actors=2", "--json", "--out", str(tmp_path / "run"))
    wait_for_round(tmp_path / "run", 5)
    os.kill(processes_of(process, "ClientActor")[0], signal.SIGKILL)
    wait_for_round(tmp_path / "run", 15)
    (driver,) = processes_of(process, "ray::Driver")
    os.kill(driver, signal.SIGKILL)
    assert bits(last_of(process)) == bits(reference)
    rounds = [json.loads(line)["round"] for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    assert rounds == [0, 5, 10, 15, 20, 25, 30]


@pytest.mark.parametrize("backend", ["in_process", pytest.param("ray", marks=pytest.mark.slow)])
def test_the_whole_run_is_killed_and_resumed(backend: str, start: Start, reference: dict, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = QUICK if backend == "in_process" else [*QUICK, *RAY, "clients.actors=2"]
    process = start(*words, "--out", str(out))
    wait_for_round(out, 10)
    family = [process.pid, *(each.pid for each in psutil.Process(process.pid).children(recursive=True))]
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    code, _, err = run(*QUICK, "--out", str(out))
    assert code == 2
    assert "already holds a run; continue it (resume)" in err
    again = RAY if backend == "ray" else []
    record = last_of(start(*again, "--json", "--out", str(out), "--resume"))
    assert bits(record) == bits(reference)
    rounds = [json.loads(line)["round"] for line in (out / "records.jsonl").read_text().splitlines()]
    assert rounds == [0, 5, 10, 15, 20, 25, 30]


@pytest.mark.parametrize(
    ("backend", "number"),
    [
        ("in_process", signal.SIGINT),
        ("in_process", signal.SIGTERM),
        ("in_process", signal.SIGHUP),
        pytest.param("ray", signal.SIGINT, marks=pytest.mark.slow),
        ("ray", signal.SIGTERM),
        pytest.param("ray", signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_saves_itself(
    backend: str, number: int, start: Start, longer_reference: dict, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["record.checkpoint_every=1000", *LONGER, "--out", str(out)]
    process = start(*words, *(RAY if backend == "ray" else []))
    wait_for_round(out, 10)
    process.send_signal(number)
    code, _, err = process.finish()
    assert code == 128 + number
    assert err.splitlines()[-1] == f"interrupted; continue: python -m fedmbo_ray.run --out {out} --resume"
    assert "Traceback" not in err
    (saved,) = (out / "checkpoints").glob("*.npz")
    assert int(saved.stem) >= 10
    assert bits(last_record("--out", str(out), "--resume")) == bits(longer_reference)


@pytest.mark.parametrize("backend", ["in_process", pytest.param("ray", marks=pytest.mark.slow)])
@pytest.mark.parametrize("count", [2, 5])
def test_further_signals_do_not_cut_off_the_save(
    backend: str, count: int, start: Start, longer_reference: dict, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["record.checkpoint_every=1000", *LONGER, "--out", str(out)]
    process = start(*words, *(RAY if backend == "ray" else []))
    wait_for_round(out, 10)
    for _ in range(count):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    code, _, err = process.finish()
    assert code == 130
    assert err.splitlines()[-1] == f"interrupted; continue: python -m fedmbo_ray.run --out {out} --resume"
    assert "Traceback" not in err
    assert [path.suffix for path in (out / "checkpoints").iterdir()] == [".npz"]
    assert bits(last_record("--out", str(out), "--resume")) == bits(longer_reference)


STUCK = """
import sys, time
from fedmbo_ray.cli.command import guarded
from fedmbo_ray.core.interruptions import at_stake
@at_stake()
def work():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        print("saving", flush=True)
        time.sleep(60)
sys.exit(guarded(work, lambda: "; continue: this way"))
"""


def test_the_third_signal_leaves_at_once_if_it_is_not_the_same_wish() -> None:
    process = subprocess.Popen([sys.executable, "-c", STUCK], stdout=-1, stderr=-1, text=True)
    assert process.stdout.readline() == "ready\n"
    for _ in range(4):  # within a second: the same wish
        process.send_signal(signal.SIGTERM)
        time.sleep(0.02)
    assert process.stdout.readline() == "saving\n"
    time.sleep(1.1)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 143
    soon, last = process.stderr.read().splitlines()
    assert (soon, last) == (
        "interrupted; saving ...",
        "ended at once; the last rounds may be lost; continue: this way",
    )


def test_of_two_starts_in_one_folder_one_wins_with_its_own_config(start: Start, tmp_path: Path) -> None:
    both = [start(*QUICK, f"seed={seed}", "--json", "--out", str(tmp_path / "run")) for seed in (1, 2)]
    results = [process.finish() for process in both]
    (winner,) = [seed for seed, (code, _, _) in zip((1, 2), results, strict=True) if code == 0]
    assert f"seed: {winner}" in (tmp_path / "run" / "config.yaml").read_text()
    assert bits(json.loads(results[winner - 1][1])) == bits(last_record("--out", str(tmp_path / "run"), "--resume"))


def test_two_processes_do_not_share_a_folder(start: Start, tmp_path: Path) -> None:
    first = start("rounds=100000", "--out", str(tmp_path / "run"))
    wait_for_round(tmp_path / "run", 0)
    code, _, err = run("--out", str(tmp_path / "run"), "--resume")
    first.terminate()
    assert first.wait() == 143
    assert code == 1
    assert "is in use by a run that has not been closed" in err
