"""A short campaign of faults: every kind that needs no Ray, once, and a few that do."""

import subprocess
import sys

import pytest
from checkout import ROOT


@pytest.mark.timeout(900)
def test_no_fault_leads_to_a_wrong_result() -> None:
    command = [sys.executable, str(ROOT / "tests" / "chaos"), "--quick", "--count", "66", "--seed", "11"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=850)
    assert found.returncode == 0, found.stdout
    assert "66 faults of" in found.stdout
    assert ": 0 wrong" in found.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["ray SIGKILL of raylet/raylet", "ray SIGTERM", "sweep SIGKILL"])
def test_faults_of_ray_and_sweeps(kind: str) -> None:
    command = [sys.executable, str(ROOT / "tests" / "chaos"), "--kind", kind, "--seed", "3"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert found.returncode == 0, found.stdout
