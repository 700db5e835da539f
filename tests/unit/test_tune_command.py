"""Sweeps without a cluster: their files shown, their bad words answered, their folders read."""

import io
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from small_sweeps import CONFIGS, SMALL, by_hand, sweep_of
from tasks import made_record

from fedmbo_ray.cli import tune
from fedmbo_ray.sweeps.folder import SweepFolder, TrialFolder
from fedmbo_ray.sweeps.progress import SweepProgress


def test_the_time_left_goes_by_the_rounds_that_each_trial_has(tmp_path: Path, monkeypatch) -> None:
    sweep, folder = sweep_of("rounds={zip: [100, 10]}", "tune.search=grid"), SweepFolder(tmp_path / "a")
    with folder.claimed(sweep.plain()):
        folder.trial("00001").begin({"rounds": 10})
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now)
        progress = SweepProgress(sweep, folder, 2, Console(file=io.StringIO()))
        now += 6.0
        progress.heard("00001", 5, 0.5, 1.0)
        assert progress.line().endswith("ETA 18 s")  # a quarter of it took six


def test_a_trial_has_diverged_when_all_its_seeds_have_ended(tmp_path: Path) -> None:
    trial = TrialFolder(tmp_path / "00000", seeds=3)
    trial.begin({})
    for seed, status in enumerate(("finished", "diverged", "finished")):
        assert trial.status == "running"
        folder = trial.run(seed)
        folder.path.mkdir()
        folder.append(made_record(0))
        assert trial.status == "running"
        folder.append(made_record(1, status=status, reason="none"))
    assert trial.status == "diverged"


@pytest.mark.parametrize("file", sorted(CONFIGS.rglob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_sweep_can_be_shown(file: Path, capsys: pytest.CaptureFixture[str], mnist: None) -> None:
    assert tune.main([str(file), "--dry-run"]) == (2 if file.stem == "gpu" else 0)
    out, err = capsys.readouterr()
    assert "a trial asks for" in out
    assert ("the cluster can run it" in out) == (file.stem != "gpu")
    assert ("error: the cluster can never run it" in err) == (file.stem == "gpu")


def test_a_sweep_to_be_continued_is_shown_as_its_folder_has_it(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    by_hand(tmp_path / "a", "algorithm.step_size={grid: [0.01, 0.02, 0.03]}", "rounds=2")
    file = str(CONFIGS / "quadratic.yaml")
    assert tune.main(["--dry-run", "--resume", "--out", "a"]) == 0
    assert "3 trials of 2 rounds each, at most; 3 have ended already" in capsys.readouterr().out
    assert tune.main([file, "--dry-run", "--out", "a"]) == 2
    assert "a already holds a sweep" in capsys.readouterr().err
    assert tune.main([file, "--dry-run", "--resume"]) == 2
    assert "resume found no sweep of 'quadratic'" in capsys.readouterr().err
    assert tune.main([file, "--dry-run", "--out", "b"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch.yaml"], "can't read nosuch.yaml"),
        (["a.yaml", "b.yaml"], "one config file at most"),
        ([SMALL[0], "tune.metric=accuracy"], "did you mean 'test_accuracy'"),
        ([SMALL[0], "clients.backend=ray", "clients.gpus_per_actor=0.25"], "must fit the cluster, but it has"),
        (
            [SMALL[0], "tune.resources={fast: 0.5}"],
            "asks for 1 CPU and 0.5 fast, which must fit the cluster, but it has",
        ),
        ([SMALL[0], "tune.resources={CPU: 1}"], "tune.resources: CPU and GPU must be asked for by cpus_per_trial"),
        ([SMALL[0], "--resume"], "resume found no sweep of 'quickstart'"),
        ([SMALL[0], "--resume", "--out", "nowhere"], "has no sweep.yaml"),
    ],
)
def test_a_bad_command_is_answered_in_one_line(words, said, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert tune.main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
