"""Folders whose files are damaged or of another kind: one line that says which file, and what to do."""

import json
import os
import shutil
from pathlib import Path

import pytest
from small_sweeps import by_hand

from fedmbo_ray.core import scratch
from fedmbo_ray.core.errors import ConfigError, FolderDamaged
from fedmbo_ray.core.io import new_identity, read_identity
from fedmbo_ray.core.timed_folders import require_writable
from fedmbo_ray.studies.plans import StudyFolder
from fedmbo_ray.sweeps.folder import SweepFolder, TrialFolder
from fedmbo_ray.tracking.background import page_command
from fedmbo_ray.tracking.connection import require_writable_store


def test_an_identity_proves_itself(tmp_path: Path) -> None:
    file = tmp_path / "identity"
    made = new_identity(file)
    assert made == new_identity(file) == read_identity(file)
    text = file.read_text()
    assert len(made) == 32
    file.write_text(made)  # as version 0.1 wrote it
    assert read_identity(file) == made
    changed = ("0" if text[0] != "0" else "1") + text[1:]
    for damaged in (changed, text[:-3], text[:20], "", "x", "{}", text.replace("-", "-0")):
        file.write_text(damaged)
        with pytest.raises(FolderDamaged, match=f"{file} is damaged.*put it back as it was, or remove it"):
            read_identity(file)
    file.write_bytes(b"\xff" * 32)
    with pytest.raises(FolderDamaged):
        new_identity(file)


def test_a_sweep_that_lost_its_identity_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = SweepFolder(tmp_path / "sweep")
    with folder.claimed({"tune": {"seeds": 1}}):
        pass
    assert capsys.readouterr().err == ""
    before = folder.identity
    folder.identity_file.unlink()
    with folder.claimed({"tune": {"seeds": 1}}):
        pass
    assert folder.identity != before
    assert "MLflow will show this a second time" in capsys.readouterr().err
    folder.identity_file.write_text("x")
    with pytest.raises(FolderDamaged, match="identity is damaged"), folder.claimed({}):
        pass
    study = StudyFolder(tmp_path / "study")
    study.begin("theory", "smoke")
    study.identity_file.unlink()
    study.begin("theory", "smoke")
    assert "a second time" in capsys.readouterr().err


def test_a_trial_that_failed_counts_as_running_once_its_sweep_goes_on(tmp_path: Path) -> None:
    """Or MLflow, told before the trial begins anew, would take it for ended, and never hear of its records."""
    folder = SweepFolder(tmp_path / "sweep")
    with folder.claimed({"tune": {"seeds": 1}}):
        for name, status in (("00000", "failed"), ("00001", "stopped")):
            folder.trial(name).begin({"seed": 1})
            folder.trial(name).end(status, "a reason")
    assert [trial.status for trial in folder.trials()] == ["failed", "stopped"]
    with folder.claimed({"tune": {"seeds": 1}}):
        assert [trial.status for trial in folder.trials()] == ["running", "stopped"]


FOREIGN = [
    "5",
    "[]",
    "null",
    '"x"',
    "{",
    "{}",
    '{"status": 5, "reason": ""}',
    '{"status": "x", "reason": ""}',
    "[" * 9999,
]


@pytest.mark.parametrize("text", FOREIGN)
def test_an_ending_of_another_kind(text: str, tmp_path: Path) -> None:
    trial = TrialFolder(tmp_path, 1)
    trial.ending_file.write_text(text)
    with pytest.raises(FolderDamaged, match=r"ending\.json is damaged") as caught:
        _ = trial.status
    assert "\n" not in str(caught.value)
    with pytest.raises(FolderDamaged):
        _ = trial.reason


@pytest.mark.parametrize("text", ["5", "[]", '"x"', "{", "[1"])
def test_points_and_figures_of_another_kind(text: str, tmp_path: Path) -> None:
    trial = TrialFolder(tmp_path, 1)
    trial.point_file.write_text(text)
    with pytest.raises(FolderDamaged, match=r"point\.json is damaged"):
        _ = trial.label
    trial.system_file.write_text(f'{{"cpu": 1}}\n{text}\n{{"cpu": 2}}\n')
    with pytest.raises(FolderDamaged, match=r"line 2 of .*system\.jsonl"):
        trial.system()
    trial.system_file.write_text('{"cpu": 1}\n{"cp')  # cut short by a crash
    assert trial.system() == [{"cpu": 1}]


@pytest.mark.parametrize("text", ["tune: 5", "tune: {}", "tune: {seeds: x}", "x: 1"])
def test_a_sweep_file_of_another_kind(text: str, tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    folder.sweep_file.write_text(text)
    with pytest.raises(FolderDamaged, match=r"sweep\.yaml is damaged"):
        _ = folder.seeds


def test_a_study_of_another_kind(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    study.begin("theory", "smoke")
    assert (study.name, study.scale) == ("theory", "smoke")
    study.scale_file.write_bytes(b"\xff\x00")
    study.name_file.write_text("<script>")
    with pytest.raises(FolderDamaged, match="must hold one of smoke, standard, paper"):
        _ = study.scale
    with pytest.raises(FolderDamaged, match="must hold one of linear_speedup"):
        _ = study.name


def test_a_sweep_is_named_by_where_its_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "steps" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert [SweepFolder(Path(word)).name for word in (".", "..", "/")] == ["inner", "steps", "sweep"]
    assert SweepFolder(Path("sweeps/2026-01-31_12-00-00")).name == "sweep"


def test_places_that_can_not_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    require_writable_store(f"sqlite:///{tmp_path}/mlflow.db")
    require_writable_store("http://127.0.0.1:5000")
    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    with pytest.raises(ConfigError, match=r"MLflow's database must be a folder to write to, but .*Read-only"):
        require_writable_store(f"sqlite:///{tmp_path}/mlflow.db")
    with pytest.raises(ConfigError, match="out must be a folder to write to"):
        require_writable(tmp_path)


def test_scratch_folders_of_dead_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    space, dead = scratch.process_space(), 2**22 + 1  # beyond the largest number of a process
    stale, foreign = tmp_path / f"fedmbo-{space}-{dead}-a", tmp_path / f"fedmbo-{space + 1}-{dead}-a"
    alive, other = tmp_path / f"fedmbo-{space}-{os.getpid()}-a", tmp_path / "fedmbo-notes"
    for each in (stale, foreign, alive, other):
        each.mkdir()
        (each / "socket").touch()
    (tmp_path / f"fedmbo-{space}-{dead}-link").symlink_to(other)
    made = scratch.scratch_folder()
    assert made.is_dir()
    assert not stale.exists()
    assert all((each / "socket").exists() for each in (foreign, alive, other))


def test_commands_quote_paths_with_spaces(tmp_path: Path) -> None:
    assert (
        page_command(f"sqlite:///{tmp_path}/my runs/mlflow.db") == f"fedmbo ui --store '{tmp_path}/my runs/mlflow.db'"
    )


def test_results_of_a_sweep_with_a_damaged_trial(tmp_path: Path) -> None:
    _, folder = by_hand(tmp_path / "sweep", "rounds=2", "algorithm.step_size={grid: [0.1, 0.2]}")
    trial = folder.trials()[0]
    trial.ending_file.write_text(json.dumps(["finished"]))
    with pytest.raises(FolderDamaged, match=r"ending\.json"):
        _ = [each.status for each in folder.trials()]
    shutil.rmtree(trial.path)
    assert all(each.done for each in folder.trials())
