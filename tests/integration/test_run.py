"""The command line: in real processes with real signals, in this one where nothing else is asked."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import psutil
import pytest

from fedmbo_ray.run import main

QUICK = ["rounds=30", "record.every=5", "record.checkpoint_every=7", "clients.num_clients=20"]
RAY = ["clients.backend=ray", "clients.cpus_per_actor=0.5"]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "fedmbo_ray.run", *words]


def start(*words: str) -> subprocess.Popen:
    pipe = subprocess.PIPE
    return subprocess.Popen(command(*words), stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def run(*words: str) -> tuple[int, str, str]:
    """In this process."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(list(words))
    return code, out.getvalue(), err.getvalue()


def last_record(*words: str) -> dict:
    """Of a run in one process, this one."""
    code, out, err = run(*words, "clients.backend=in_process", "--json")
    assert code == 0, err
    return json.loads(out)


def last_record_on_ray(*words: str) -> dict:
    code, out, err = finish(start(*words, *RAY, "--json"))
    assert code == 0, err
    return json.loads(out)


def bits(record: dict) -> tuple[str, str]:
    return record["x_sha256"], record["y_sha256"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The last record of an undisturbed run in one process."""
    return last_record(*QUICK, "--out", str(tmp_path_factory.mktemp("reference") / "run"))


def wait_for_round(out: Path, round: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        lines = (out / "records.jsonl").read_text().splitlines() if (out / "records.jsonl").exists() else []
        if any(json.loads(line)["round"] >= round for line in lines if line.endswith("}")):
            return
        time.sleep(0.05)
    raise TimeoutError(f"round {round} was not reached")


def processes_of(process: subprocess.Popen, title: str) -> list[int]:
    family = psutil.Process(process.pid).children(recursive=True)
    return [each.pid for each in family if any(title in word for word in each.cmdline())]


def test_json_prints_the_last_record_alone(tmp_path: Path) -> None:
    code, out, err = finish(start(*QUICK, "--json", "--out", str(tmp_path / "run")))
    record = json.loads(out)
    assert code == 0
    assert "finished after 30 rounds" in err
    lines = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 5, 10, 15, 20, 25, 30]
    assert lines[-1] == record
    wanted = "round communications samples data_epochs floats_up floats_down lower_loss upper_loss test_loss"
    assert set(wanted.split()) | {"test_accuracy", "wall_seconds", "status", "x_sha256", "y_sha256"} <= set(record)
    assert all("status" not in line for line in lines[:-1])
    assert (tmp_path / "run" / "config.yaml").exists()
    assert len(list((tmp_path / "run" / "checkpoints").glob("*.pt"))) == 2


def test_the_quadratic_reports_its_exact_hypergradient(tmp_path: Path) -> None:
    config = tmp_path / "quadratic.yaml"
    config.write_text(
        "problem: quadratic\nrounds: 20\nalgorithm: {name: double_loop, step_size: 0.1, smoothness: 1,"
        " lower: {name: minibatch_sgd, steps: 2, step_size: 0.5, batch_size: 2},"
        " hypergradient: {name: phe, terms: 5, batch_size: 1}}\n"
    )
    record = last_record(str(config), "--out", str(tmp_path / "run"))
    assert record["hypergradient_norm_sq"] > 0
    assert "test_accuracy" not in record
    assert record["data_epochs"] is None


@pytest.mark.parametrize("actors", [3])
def test_ray_gives_the_bits_of_in_process(actors: int, reference: dict, tmp_path: Path) -> None:
    record = last_record_on_ray(*QUICK, f"clients.actors={actors}", "--out", str(tmp_path / "run"))
    assert bits(record) == bits(reference)
    same = [key for key in reference if key not in ("wall_seconds", "backend")]
    assert {key: record[key] for key in same} == {key: reference[key] for key in same}
    assert (reference["backend"], record["backend"]) == ("in_process", f"ray, {actors} actor(s) by socket")


def test_clients_and_driver_are_killed_and_the_run_goes_on_by_itself(reference: dict, tmp_path: Path) -> None:
    process = start(*QUICK, *RAY, "clients.actors=2", "--json", "--out", str(tmp_path / "run"))
    wait_for_round(tmp_path / "run", 5)
    os.kill(processes_of(process, "ClientActor")[0], signal.SIGKILL)
    wait_for_round(tmp_path / "run", 15)
    (driver,) = processes_of(process, "ray::Driver")
    os.kill(driver, signal.SIGKILL)
    code, out, err = finish(process)
    assert code == 0, err
    assert bits(json.loads(out)) == bits(reference)
    rounds = [json.loads(line)["round"] for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    assert rounds == [0, 5, 10, 15, 20, 25, 30]


@pytest.mark.parametrize("backend", ["in_process", "ray"])
def test_the_whole_run_is_killed_and_resumed(backend: str, reference: dict, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = QUICK if backend == "in_process" else [*QUICK, *RAY, "clients.actors=2"]
    process = start(*words, "--out", str(out))
    wait_for_round(out, 10)
    family = [process.pid, *(each.pid for each in psutil.Process(process.pid).children(recursive=True))]
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    finish(process)
    code, _, err = run(*QUICK, "--out", str(out))
    assert code == 2
    assert "already holds a run: continue it with --resume" in err
    record = (last_record_on_ray if backend == "ray" else last_record)("--out", str(out), "--resume")
    assert bits(record) == bits(reference)
    rounds = [json.loads(line)["round"] for line in (out / "records.jsonl").read_text().splitlines()]
    assert rounds == [0, 5, 10, 15, 20, 25, 30]


@pytest.mark.parametrize(
    ("backend", "number"), [("in_process", signal.SIGINT), ("in_process", signal.SIGTERM), ("ray", signal.SIGINT)]
)
def test_an_interrupted_run_saves_itself(backend: str, number: int, reference: dict, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["record.checkpoint_every=1000", *QUICK[:2], QUICK[3], "--out", str(out)]
    process = start(*words, *(RAY if backend == "ray" else []))
    wait_for_round(out, 10)
    process.send_signal(number)
    code, _, err = finish(process)
    assert code == 130
    assert err.splitlines()[-1] == f"interrupted; continue with --out {out} --resume"
    assert "Traceback" not in err
    (saved,) = (out / "checkpoints").glob("*.pt")
    assert int(saved.stem) >= 10
    assert bits(last_record("--out", str(out), "--resume")) == bits(reference)


def test_a_damaged_checkpoint_is_passed_over(reference: dict, tmp_path: Path) -> None:
    out = tmp_path / "run"
    last_record(*QUICK, "--out", str(out))
    newest = max((out / "checkpoints").glob("*.pt"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1  # one bit
    newest.write_bytes(content)
    (out / "checkpoints" / "mine.pt").write_text("not a checkpoint")
    code, text, err = run("--out", str(out), "--resume", "--json")
    assert "passing over the damaged checkpoint" in err
    assert code == 0
    assert bits(json.loads(text)) == bits(reference)


def test_a_damaged_record_file_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "run"
    last_record(*QUICK, "--out", str(out))
    records = (out / "records.jsonl").read_text().splitlines()
    (out / "records.jsonl").write_text("\n".join([records[0], "{}", *records[2:]]))
    before = (out / "records.jsonl").read_text()
    code, _, err = run("--out", str(out), "--resume")
    assert code == 1
    assert "line 2 of" in err
    assert (out / "records.jsonl").read_text() == before


def test_resume_must_keep_the_config(tmp_path: Path) -> None:
    out = tmp_path / "run"
    last_record(*QUICK, "--out", str(out))
    code, _, err = run("--out", str(out), "--resume", "seed=1", "clients.backend=ray")
    assert code == 2
    assert "--resume must keep the run's config, but these keys are new: seed; only clients.backend" in err


def test_divergence_ends_the_run_with_a_status(tmp_path: Path) -> None:
    words = [*QUICK, "rounds=1000", "algorithm.smoothness=0.1", "--out", str(tmp_path / "run"), "--json"]
    code, out, err = run(*words)
    record = json.loads(out)
    assert code == 1
    assert record["status"] == "diverged"
    assert record["round"] < 1000
    assert "exceeds" in record["reason"] or "not finite" in record["reason"]
    assert "Try a smaller algorithm.step_size" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["algorithm.hypergradient.terms=0"], "error: algorithm.hypergradient.terms: input should be greater than or"),
        (["nowhere.yaml"], "error: can't read nowhere.yaml: No such file or directory"),
        (["clients.num_clients=2000"], "error: data.partition: `rows of a label >= clients that own it` must hold"),
        (["a.yaml", "b.yaml"], "error: one config file at most, but got a.yaml, b.yaml"),
        (["--out", "/proc/none"], "error: --out must be a folder to write to, but /proc/none"),
        (["--resume", "--out", "nowhere"], "error: --resume needs a folder with a run, but nowhere has no config.yaml"),
        (
            ["clients.backend=ray", "clients.gpus_per_actor=3"],
            "error: clients.actors: 2 actors of 1 CPU and 3 GPU must fit",
        ),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(words: list[str], line: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    out = [] if "--out" in words else ["--out", str(tmp_path / "run")]
    code, stdout, err = run(*words, *out)
    assert code == 2
    assert stdout == ""
    (last,) = [each for each in err.splitlines() if not each.startswith("starting Ray")]
    assert last.startswith(line)
    assert not (tmp_path / "run" / "records.jsonl").exists()


def test_resume_needs_a_folder() -> None:
    assert run("--resume") == (2, "", "error: --resume needs --out, the folder of the run to continue (see --help)\n")


def test_of_two_starts_in_one_folder_one_wins_with_its_own_config(tmp_path: Path) -> None:
    both = [start(*QUICK, f"seed={seed}", "--json", "--out", str(tmp_path / "run")) for seed in (1, 2)]
    results = [finish(process) for process in both]
    (winner,) = [seed for seed, (code, _, _) in zip((1, 2), results, strict=True) if code == 0]
    assert f"seed: {winner}" in (tmp_path / "run" / "config.yaml").read_text()
    assert bits(json.loads(results[winner - 1][1])) == bits(last_record("--out", str(tmp_path / "run"), "--resume"))


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    first = start("rounds=100000", "--out", str(tmp_path / "run"))
    wait_for_round(tmp_path / "run", 0)
    code, _, err = run("--out", str(tmp_path / "run"), "--resume")
    first.terminate()
    finish(first)
    assert code == 1
    assert "another process is running in" in err
