"""Pictures of recorded runs."""

import json
import subprocess
import sys
from pathlib import Path

from analysis.curves import labels


def make_run(folder: Path, **figures: float) -> Path:
    folder.mkdir(parents=True)
    falling = [{name: value / (k + 1) for name, value in figures.items()} for k in range(3)]
    lines = [json.dumps({"round": k, "communications": 10 * k, **falling[k]}) for k in range(3)]
    (folder / "records.jsonl").write_text("\n".join(lines))
    return folder


def curves(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-W", "error", "-m", "analysis.curves", *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_picture_of_unlike_runs(tmp_path: Path) -> None:
    first = make_run(tmp_path / "a" / "run", test_accuracy=0.9, lower_loss=-1.0, upper_loss=1.0)
    second = make_run(tmp_path / "b" / "run", hypergradient_norm_sq=0.1, lower_loss=2.0)
    done = curves(str(first), str(second), "--out", str(tmp_path / "new" / "curves.png"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new" / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_runs_of_one_name_are_told_apart() -> None:
    assert labels([Path("a/run"), Path("b/run")]) == ["a/run", "b/run"]
    assert labels([Path("a/x"), Path("b/y")]) == ["x", "y"]


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    done = curves(str(tmp_path))
    assert done.returncode == 2
    assert done.stderr == f"error: a run folder must hold records.jsonl, but {tmp_path} does not\n"
