"""The command that runs one config, in this process: what it records, resumes and refuses."""

import json
from pathlib import Path

import pytest
from quick_runs import QUICK, bits, last_record, run


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The last record of an undisturbed run in one process."""
    return last_record(*QUICK, "--out", str(tmp_path_factory.mktemp("reference") / "run"))


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


def test_a_damaged_checkpoint_is_passed_over(reference: dict, tmp_path: Path) -> None:
    out = tmp_path / "run"
    last_record(*QUICK, "--out", str(out))
    records = (out / "records.jsonl").read_text().splitlines(keepends=True)
    (out / "records.jsonl").write_text("".join(records[:-1]))  # as if it had been killed before its last record
    newest = max((out / "checkpoints").glob("*.npz"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1  # one bit
    newest.write_bytes(content)
    (out / "checkpoints" / "mine.npz").write_text("not a checkpoint")
    code, text, err = run("--out", str(out), "--resume", "--json")
    assert f"passing over the checkpoint {newest}, which is damaged" in err
    assert code == 0
    assert bits(json.loads(text)) == bits(reference)


def test_a_finished_run_is_not_started_again(tmp_path: Path) -> None:
    out = tmp_path / "two words"
    record = last_record(*QUICK, "--out", str(out))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != ".lock"}
    code, text, err = run("--out", str(out), "--resume", "--json")
    assert (code, json.loads(text)) == (0, record)
    assert "finished before; for more rounds: --resume rounds=60" in err
    assert f"plot: fedmbo plot '{out}'" in err
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_longer_run_shows_its_own_rounds_alone(tmp_path: Path) -> None:
    out = tmp_path / "run"
    last_record(*QUICK, "--out", str(out))
    code, _, err = run("--out", str(out), "--resume", "rounds=40")
    assert code == 0
    shown = [line for line in err.splitlines() if line.startswith("round ")]
    assert shown[0].startswith("round 30/40")
    assert shown[-1].startswith("round 40/40")


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
    assert "resume must keep the run's config, but these keys differ: seed; only clients.backend" in err


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
        (["--out", "/proc/none"], "error: out must be a folder to write to, but /proc/none"),
        (["--resume", "--out", "nowhere"], "error: resume needs a folder with a run, but nowhere has no config.yaml"),
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
    said = [each for each in err.splitlines() if not each.startswith("starting Ray")]
    assert len(said) == 1, err
    assert said[0].startswith(line)
    assert not (tmp_path / "run" / "records.jsonl").exists()


def test_resume_needs_a_folder() -> None:
    assert run("--resume") == (2, "", "error: --resume needs --out, the folder of the run to continue (see --help)\n")
