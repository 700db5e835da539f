"""Pictures of recorded runs, and what commands say of what is wrong."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tasks import made_record

from fedmbo_ray.analysis.curves import labels
from fedmbo_ray.cli import plot, report


def make_run(folder: Path, **figures: float) -> Path:
    folder.mkdir(parents=True)
    falling = [{name: value / (k + 1) for name, value in figures.items()} for k in range(3)]
    lines = [json.dumps(made_record(k, communications=10 * k, **falling[k])) for k in range(3)]
    (folder / "records.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A command has handlers of its own."""
    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in known.items():
        signal.signal(number, handler)


def test_a_picture_of_unlike_runs(tmp_path: Path) -> None:
    first = make_run(tmp_path / "a" / "run", test_accuracy=0.9, lower_loss=-1.0, upper_loss=1.0)
    second = make_run(tmp_path / "b" / "run", hypergradient_norm_sq=0.1, lower_loss=2.0)
    assert plot.main([str(first), str(second), "--out", str(tmp_path / "new" / "curves.png")]) == 0
    assert (tmp_path / "new" / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_runs_of_one_name_are_told_apart() -> None:
    assert labels([Path("a/run"), Path("b/run")]) == ["a/run", "b/run"]
    assert labels([Path("a/x"), Path("b/y")]) == ["x", "y"]


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, damaged = make_run(tmp_path / "run", upper_loss=1.0), make_run(tmp_path / "damaged", upper_loss=1.0)
    (damaged / "records.jsonl").write_text("?\n" * 3)
    put_back = f"put it back as it was, or remove {damaged} to run it again"
    for words, code, said in (
        ([str(tmp_path)], 2, f"a run folder must hold records.jsonl with records, but {tmp_path} does not"),
        ([str(run), "--out", "a.doc"], 2, "--out must end in one of png, svg, pdf, but got a.doc"),
        ([str(damaged)], 1, f"line 1 of {damaged / 'records.jsonl'} is not a record, since it is not JSON; {put_back}"),
        ([str(run), "--out", "/proc/none/a.png"], 1, "[Errno 2] No such file or directory: '/proc/none'"),
    ):
        assert plot.main(words) == code
        assert capsys.readouterr().err == f"error: {said}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with no MLflow in sight."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def test_a_report_of_nothing(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for words, uri, code, said in (
        ([], "", 2, f"no MLflow at sqlite:///{here}/mlflow.db; run a study"),
        (["--scale", "large"], "", 2, "argument --scale: invalid choice: 'large' (choose from"),
        ([], "http://127.0.0.1:9", 1, "MLflow at http://127.0.0.1:9 can't be read: API request"),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert report.main(words) == code
        text = capsys.readouterr().err
        assert text.removeprefix(f"reading {uri}\n").startswith(f"error: {said}")
        assert text.removeprefix(f"reading {uri}\n").count("\n") == 1
    assert list(here.iterdir()) == []


def test_a_damaged_verdict_is_named_and_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path("report/figures/theory/verdict.json")
    file.parent.mkdir(parents=True)
    file.write_text('{"status": "passed"}')
    Path("mlflow.db").touch()
    assert report.main([]) == 1
    assert f"{file} is not what a report has written" in capsys.readouterr().err
    assert file.read_text() == '{"status": "passed"}'
