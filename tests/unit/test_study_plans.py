"""Which sweeps a study has, at every scale, and what its command says of a bad word."""

import sys
from pathlib import Path

import pytest
from checkout import ROOT

from fedmbo_ray.cli.study import main
from fedmbo_ray.studies.plans import STUDIES, StudyContext, StudyFolder
from fedmbo_ray.sweeps.schema import read_sweep


@pytest.mark.parametrize("scale", ["smoke", "standard", "paper"])
def test_every_sweep_of_a_study_has_every_scale(scale: str, tmp_path: Path) -> None:
    for name, sweeps_of in STUDIES.items():
        folder = StudyFolder(tmp_path / f"{name}-{scale}")
        if name not in ("estimators", "methods"):  # theirs depend on each other's results
            assert all(sweep.points() for _, sweep in sweeps_of(StudyContext(folder, scale, [])))
    for file in [*ROOT.glob("tune_configs/studies/*/*.yaml"), *ROOT.glob("tune_configs/methods/*.yaml")]:
        assert read_sweep(file, [], scale).points()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["lineer_speedup"], "unknown study 'lineer_speedup'; did you mean 'linear_speedup'?"),
        (
            ["theory", "--only", "innner"],
            "only must name sweeps of the study theory, but got 'innner'; did you mean 'inner'?",
        ),
        (["theory", "clients.cohort_sice=3"], "clients: unknown key 'cohort_sice'; did you mean 'cohort_size'?"),
        (["theory", "clients", "--out", "x"], "--out is for one study, but got theory, clients"),
    ],
)
def test_a_bad_word_is_one_line(words: list[str], line: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.strip().splitlines()[-1].startswith(f"error: {line}")
    assert "Traceback" not in err
