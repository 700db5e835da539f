"""What benchmarks.load measures, and what it does not take for finished."""

import sqlite3
from pathlib import Path

import pytest

from benchmarks import load
from benchmarks.load import (
    LOADS,
    ONE_CLIENT,
    SHORT,
    Load,
    Part,
    Sample,
    is_flat,
    last_round,
    main,
    measured,
    store_faults,
)
from fedmbo_ray.runs.folder import RunFolder

MB = 10**6


def test_memory_is_flat_if_it_hardly_grows() -> None:
    assert is_flat(500 * MB, 549 * MB)
    assert not is_flat(500 * MB, 551 * MB)
    assert is_flat(100 * MB, 129 * MB)
    assert not is_flat(100 * MB, 131 * MB)


def test_a_part_compares_its_end_with_its_warm_up() -> None:
    samples = [Sample(second, second / 10, 100 * MB + second * 10 * MB) for second in range(11)]
    part = Part("a", samples, 10, [])
    assert (part.began, part.peak, part.verdict) == (1, 200 * MB, "grows")
    assert Part("a", samples[:5], 4, []).verdict == "not measured"


def test_the_last_round_is_that_of_the_last_whole_line(tmp_path: Path) -> None:
    assert last_round(tmp_path / "none") == 0
    (tmp_path / "records").write_text('{"round": 1}\n{"round": 2}\n{"rou')
    assert last_round(tmp_path / "records") == 2


def test_a_run_is_measured_to_its_end(tmp_path: Path) -> None:
    (part,) = measured("short", Load(SHORT, 200, 10), tmp_path)
    assert part.faults == []
    assert min(sample.memory for sample in part.samples) > 0
    assert part.peak > 50 * MB


@pytest.mark.slow
def test_a_run_is_killed_and_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "KILLED", 0.01)  # long before it ends by itself
    monkeypatch.setattr(load, "BETWEEN", 0.05)
    killed, resumed = measured("killed", Load(ONE_CLIENT, 3000, megabytes=0.2), tmp_path)
    assert killed.faults == resumed.faults == []
    assert RunFolder(tmp_path / "out").records_file.stat().st_size > 0.2 * MB


def test_what_does_not_finish_is_said(tmp_path: Path) -> None:
    (part,) = measured("wrong", Load(("rounds=-1",), 10), tmp_path)
    assert part.faults[0].startswith("exit code 2: error: rounds: input should be")


def test_points_that_mlflow_has_twice_are_found(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    assert store_faults(file, 1, 1) == ["MLflow has no database"]
    with sqlite3.connect(file) as base:
        base.execute("create table runs (run_uuid, status)")
        base.execute("create table tags (run_uuid, key)")
        base.execute("create table metrics (run_uuid, key, step)")
        base.execute("insert into runs values ('a', 'FINISHED')")
        base.execute("insert into tags values ('a', 'trial')")
        base.executemany("insert into metrics values ('a', 'round', ?)", [(0,), (1,), (1,)])
    assert store_faults(file, 1, 3) == ["MLflow has 1 doubled points, not 0"]


def test_an_unknown_load_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert f"NAME must be one of {', '.join(LOADS)}, but got 'nothing'" in capsys.readouterr().err
