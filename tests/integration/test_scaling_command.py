"""The command that measures the constants of a round's time, and predicts larger clusters."""

import json
from pathlib import Path

import pytest

from benchmarks.scaling.__main__ import main


@pytest.mark.slow
def test_the_command_measures_and_draws(cluster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data.name=digits", "clients.cohort_size=10", "--rounds", "2", "--out", str(tmp_path)]
    assert main(words) == 0
    assert "Expected, one block per actor" in capsys.readouterr().out
    results = json.loads((tmp_path / "scaling.json").read_text())
    assert results["costs"]["call"] > 0
    assert results["points"][0]["measured"] > 0
    assert [row["nodes"] for row in results["expected"]] == [1, 3, 10, 30, 100, 300, 1000]
    assert (tmp_path / "scaling.png").stat().st_size > 5000
    assert main(["clients.cohort_size=-1"]) == 2
