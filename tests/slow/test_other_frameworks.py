"""Every arm of the benchmarks runs; the first time, this installs two other frameworks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT


@pytest.mark.timeout(1500)  # the first time, it installs two other frameworks
def test_the_short_form_runs_every_arm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--short", "--data", "digits", "--out", str(tmp_path / "out")]
    subprocess.run([*command, "--environments", str(ROOT / ".bench")], check=True, cwd=ROOT)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert set(results) >= {"one_step", "fedmbo", "cnn", "wide", "fednest", "growth", "machine"}
    for part in ("one_step", "fedmbo", "cnn", "wide", "fednest"):
        for name, arm in results[part]["arms"].items():
            assert arm["median_seconds"] > 0, name
            assert arm["figures"]["test_accuracy"] > 0.15 or name == "products alone", (part, name)
    assert (tmp_path / "out" / "speed.png").stat().st_size > 10_000
    if results["one_step"]["missing"]:
        pytest.skip(f"all other arms ran, but {'; '.join(results['one_step']['missing'].values())}")
    assert {"flower", "pfl"} < set(results["one_step"]["arms"])
