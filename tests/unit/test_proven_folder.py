"""A run's folder proves itself: no checkpoint meets the config or the records of another run."""

import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from tasks import tiny_config

from fedmbo_ray import load
from fedmbo_ray.core.errors import ConfigError, FolderDamaged, FolderInUse, RunFailed
from fedmbo_ray.runs.arrays import npz
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.loop import Loop, in_process, run
from fedmbo_ray.sweeps.trial import records_of

RECORD = {"every": 5, "checkpoint_every": 10, "checkpoints_kept": 2}
CONFIG = tiny_config(rounds=60, record=RECORD)
ROUNDS = list(range(0, 61, 5))


@pytest.fixture(scope="module")
def whole() -> dict:
    *_, last = run(CONFIG)
    return last


def stopped(path: Path, rounds: int = 37, seed: int = 0) -> RunFolder:
    """As a kill in that round leaves it: checkpoints of rounds 20 and 30, records up to 35."""
    folder = RunFolder(path)
    with Loop(CONFIG.model_copy(update={"seed": seed}), folder) as loop:
        loop.opening()
        while loop.round < rounds:
            loop.step()
        loop.saved = loop.round  # nothing is saved at the end
    return folder


def lines(folder: RunFolder) -> list[str]:
    return folder.records_file.read_text().splitlines(keepends=True)


def continued(folder: RunFolder) -> list[dict]:
    return list(run(CONFIG, RunFolder(folder.path), resume=True))


DAMAGE = {
    "cut in half": lambda old: old[: len(old) // 2],
    "empty": lambda old: [],
    "one missing": lambda old: old[:2] + old[3:],
    "one twice": lambda old: [*old[:2], old[2], *old[2:]],
    "one of another run": lambda old: [*old[:2], old[2].replace("lower_loss", "other_loss"), *old[3:]],
    "two exchanged": lambda old: [old[1], old[0], *old[2:]],
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_records_that_a_checkpoint_does_not_know_are_found_out(kind: str, tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    folder.records_file.write_text("".join(DAMAGE[kind](lines(folder))))
    before = lines(folder)
    with pytest.raises(
        FolderDamaged, match=r"(was made after .* records.*); put config.yaml and records.jsonl back"
    ) as error:
        continued(folder)
    assert "\n" not in str(error.value)
    assert lines(folder) == before
    assert folder.saved_round() == 30


def test_an_older_checkpoint_is_used_where_its_records_are_there(tmp_path: Path, whole: dict, capsys) -> None:
    folder = stopped(tmp_path / "run")
    folder.records_file.write_text("".join(lines(folder)[:6]))  # up to round 25
    records = continued(folder)
    assert [record["round"] for record in records] == ROUNDS
    assert records[-1]["x_sha256"] == whole["x_sha256"]
    said = capsys.readouterr().err
    assert "00000030.npz, which was made after 7 records, but there are only 6" in said
    assert (folder.checkpoints / "00000060.npz").exists()


def test_lines_after_the_checkpoint_are_made_again(tmp_path: Path, whole: dict) -> None:
    folder = stopped(tmp_path / "run")
    folder.records_file.write_text("".join([*lines(folder), *lines(folder)[-2:], '{"round": 1']))
    records = continued(folder)
    assert [record["round"] for record in records] == ROUNDS
    assert [json.loads(line)["round"] for line in lines(folder)] == ROUNDS
    assert records[-1]["x_sha256"] == whole["x_sha256"]


def test_a_new_run_never_meets_old_checkpoints(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    folder.records_file.unlink()
    with pytest.raises(
        ConfigError, match=r"holds checkpoints of another run, without its records; choose another folder"
    ):
        list(run(CONFIG.model_copy(update={"seed": 3}), RunFolder(folder.path)))
    assert folder.saved_round() == 30


def test_a_checkpoint_of_another_seed_is_not_continued(tmp_path: Path, whole: dict, capsys) -> None:
    folder, other = stopped(tmp_path / "run"), stopped(tmp_path / "other", rounds=52, seed=3)
    shutil.copy(other.checkpoints / "00000050.npz", folder.checkpoints)
    records = continued(folder)
    assert records[-1]["x_sha256"] == whole["x_sha256"]
    assert "00000050.npz, which is of another config: seed differs" in capsys.readouterr().err
    (folder := stopped(tmp_path / "third")).config_file.write_text(folder.config_file.read_text())
    for path in folder.checkpoints.glob("*.npz"):
        shutil.copy(other.checkpoints / "00000050.npz", path)
    with pytest.raises(
        FolderDamaged, match=r"is of another config: seed differs; put config.yaml and records.jsonl back"
    ):
        continued(folder)


def test_an_edited_config_is_found_out(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    folder.config_file.write_text(folder.config_file.read_text().replace("seed: 0", "seed: 4"))
    with pytest.raises(FolderDamaged, match=r"is of another config: seed differs"):
        RunFolder(folder.path).latest()


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.zeros(3)}, "is not a checkpoint"),
        ({"_about": np.array("[]")}, "is not a checkpoint"),
        ({"_about": np.array("not JSON")}, "is not a checkpoint"),
        (
            {"_about": np.array('{"format": 99, "costs": {"round": 40}}')},
            "has format 99, but this version of fedmbo_ray",
        ),
    ],
)
def test_a_whole_file_that_is_no_checkpoint_is_passed_over(arrays, said, tmp_path: Path, whole: dict, capsys) -> None:
    folder = stopped(tmp_path / "run")
    (folder.checkpoints / "00000040.npz").write_bytes(npz(arrays))
    assert continued(folder)[-1]["x_sha256"] == whole["x_sha256"]
    assert said in capsys.readouterr().err


def test_without_a_whole_checkpoint_a_run_begins_again(tmp_path: Path, whole: dict) -> None:
    folder = stopped(tmp_path / "run")
    for path in folder.checkpoints.glob("*.npz"):
        path.write_bytes(path.read_bytes()[:-1])
    records = continued(folder)
    assert [record["round"] for record in records] == ROUNDS
    assert records[-1]["x_sha256"] == whole["x_sha256"]


@pytest.mark.parametrize("line", ['{"round": "12"}', '{"round": 1.5}', '{"rounds": 1}', "[1]", "null", "[" * 100_000])
def test_a_line_that_is_no_record_is_named(line: str, tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    old = lines(folder)
    folder.records_file.write_text("".join([old[0], line + "\n", *old[1:]]))
    with pytest.raises(FolderDamaged, match=r"line 2 of .*records.jsonl is not a record"):
        continued(folder)


def test_a_result_of_another_run_is_found_out(tmp_path: Path) -> None:
    folder, other = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "other")
    list(run(CONFIG, folder))
    list(run(CONFIG.model_copy(update={"seed": 1}), other))
    shutil.copy(other.result_file, folder.result_file)
    with pytest.raises(
        FolderDamaged, match=r"result.npz is not that of the last record: resuming the run makes it again"
    ):
        folder.result()


DIVERGED = ('"finished"', '"diverged", "reason": "x is not finite"')


@pytest.mark.parametrize("change", [("upper_loss", "upper_lost"), ("0.", "1."), DIVERGED])
def test_records_of_a_finished_run_that_were_changed_are_found_out(change: tuple[str, str], tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    list(run(CONFIG, folder))
    assert folder.proven_records() == folder.records()
    *before, last = lines(folder)
    folder.records_file.write_text("".join([*before, last.replace(*change)]))
    with pytest.raises(FolderDamaged, match=r"records.jsonl was changed after the run had ended; put it back"):
        folder.proven_records()
    with pytest.raises(FolderDamaged, match=r"was changed after the run had ended"):
        load(folder.path)


def test_records_are_durable_before_the_checkpoint_that_counts_them(tmp_path: Path, monkeypatch) -> None:
    folder, synced = RunFolder(tmp_path / "run"), []
    import os

    fsync = os.fsync

    def noted(file: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        fsync(file)

    monkeypatch.setattr("os.fsync", noted)
    list(run(CONFIG, folder))
    at = synced.index(".00000010.npz.new")
    assert synced[at - 2 : at] == ["records.jsonl", "run"]
    assert synced[at + 1] == "checkpoints"  # the new name, before an older checkpoint goes


@pytest.mark.parametrize("text", ["", "x: [", "seed: none\n"])
def test_the_config_of_a_trial_is_written_again(text: str, tmp_path: Path, whole: dict) -> None:
    """The sweep knows it, and checkpoints tell whether they are of it."""
    folder = stopped(tmp_path / "run")
    before = folder.config_file.read_text()
    folder.config_file.write_text(text)
    *_, last = records_of(CONFIG, folder, in_process)
    assert last["x_sha256"] == whole["x_sha256"]
    assert folder.config_file.read_text() == before


def test_the_config_of_a_trial_that_was_edited_is_found_out(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    folder.config_file.write_text(folder.config_file.read_text().replace("seed: 0", "seed: 5"))
    with pytest.raises(RunFailed, match=rf"keys differ: seed; .* or remove {folder.path} to run it again$"):
        list(records_of(CONFIG, folder, in_process))


def test_who_has_patience_gets_a_folder_when_it_is_free(tmp_path: Path) -> None:
    """As a driver does that replaces one which Ray takes for dead, but which has not noticed yet."""
    holder = run(CONFIG, RunFolder(tmp_path))
    next(holder)
    with pytest.raises(FolderInUse, match="is in use"):
        next(run(CONFIG, RunFolder(tmp_path), resume=True, patience=0.2))
    threading.Timer(0.5, holder.close).start()
    assert [record["round"] for record in run(CONFIG, RunFolder(tmp_path), resume=True, patience=60)] == ROUNDS
