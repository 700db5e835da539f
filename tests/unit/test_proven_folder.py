"""A run's folder proves itself: no checkpoint meets the config or the records of another run."""

import io
import json
import re
import shutil
import threading
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from tasks import made_record, tiny_config

from fedmbo_ray import load, run_experiment
from fedmbo_ray.cli import plot
from fedmbo_ray.cli.run import main
from fedmbo_ray.core.errors import ConfigError, FolderDamaged, FolderInUse, RunFailed
from fedmbo_ray.runs.arrays import NamedArrays, npz, read_npz
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.loop import Loop, in_process, run
from fedmbo_ray.runs.records import read_record
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
    return written(path, files_of(stop, rounds, seed))


def finished(path: Path, seed: int = 0) -> RunFolder:
    return written(path, files_of(finish, ROUNDS[-1], seed))


def written(path: Path, files: dict[Path, bytes]) -> RunFolder:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return RunFolder(path)


@cache
def files_of(make: Callable[[RunFolder, int, int], None], rounds: int, seed: int) -> dict[Path, bytes]:
    with TemporaryDirectory() as place:
        make(RunFolder(Path(place)), rounds, seed)
        return {path.relative_to(place): path.read_bytes() for path in Path(place).rglob("*") if path.is_file()}


def finish(folder: RunFolder, rounds: int, seed: int) -> None:
    list(run(CONFIG.model_copy(update={"seed": seed, "rounds": rounds}), folder))


def stop(folder: RunFolder, rounds: int, seed: int) -> None:
    with Loop(CONFIG.model_copy(update={"seed": seed}), folder) as loop:
        loop.opening()
        while loop.round < rounds:
            loop.step()
        loop.saved = loop.round  # nothing is saved at the end


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


def with_note(*path: str, value: object) -> Callable[[NamedArrays], NamedArrays]:
    """A checkpoint whose note has another value at a path of keys; `...` removes the key."""

    def change(arrays: NamedArrays) -> NamedArrays:
        note = part = json.loads(str(arrays["_about"]))
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value
        if value is ...:
            del part[path[-1]]
        return {**arrays, "_about": np.array(json.dumps(note))}

    return change


def with_arrays(**others: np.ndarray) -> Callable[[NamedArrays], NamedArrays]:
    return lambda arrays: {**arrays, **others}


NOTES = [
    *(with_note(key, value=...) for key in ("costs", "sums", "config", "records", "records_sha256")),
    *(with_note("records", value=value) for value in ("7", -1, 1.5, True, None, [7])),
    *(with_note(key, value=value) for key in ("costs", "sums", "config") for value in ([], "text", None)),
    *(with_note("costs", key, value="many") for key in ("round", "samples", "wall_seconds", "data_epochs")),
    *(with_note("costs", key, value=...) for key in ("round", "waited", "cpu_seconds")),
    with_note("costs", "wall_seconds", value=float("nan")),
    with_note("costs", "samples", value=10**400),
    with_note("costs", "more", value=1),
    with_note("more", value=1),
    with_note("sums", "upper_loss", value="many"),
    with_note("records_sha256", value="text"),
    with_note("format", value="2"),
    with_arrays(_about=np.arange(3)),
    with_arrays(_about=np.array(b"{}")),
    with_arrays(x=np.array(["text"])),
    with_arrays(x=np.arange(3)),
    with_arrays(x=np.zeros(3, ">f4")),
    lambda arrays: {name: array for name, array in arrays.items() if name != "y"},
]


@pytest.mark.parametrize("change", NOTES)
def test_a_checkpoint_with_other_content_is_passed_over(change, tmp_path: Path, capsys) -> None:
    folder = stopped(tmp_path / "run")
    path = folder.checkpoints / "00000030.npz"
    path.write_bytes(npz(change(read_npz(path))))
    found = folder.latest(tell=True)
    assert found is not None
    assert found.round == 20
    assert f"{path}, which is not a checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        with_arrays(x=np.zeros((2, 2), np.float32)),
        with_arrays(more=np.zeros(3)),
        with_note("sums", "upper_loss", value=1.0),
    ],
)
def test_a_checkpoint_of_other_tensors_or_figures_is_not_continued(change, tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    path = folder.checkpoints / "00000030.npz"
    path.write_bytes(npz(change(read_npz(path))))
    with pytest.raises(FolderDamaged, match=r"other shapes or figures than the run has now; put back"):
        continued(folder)


def test_content_of_another_kind_is_damaged_though_its_digest_is_right(tmp_path: Path) -> None:
    path, archive = tmp_path / "00000030.npz", io.BytesIO()
    np.savez(archive, x=np.array([{}], dtype=object))
    for content in (b"", b"text", archive.getvalue(), npz({"x": np.zeros(3)})[:-70]):
        path.write_bytes(content + sha256(content).hexdigest().encode())
        assert read_npz(path) is None


@pytest.mark.parametrize("line", ['{"round": "12"}', '{"round": 1.5}', '{"rounds": 1}', "[1]", "null", "[" * 100_000])
def test_a_line_that_is_no_record_is_named(line: str, tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run")
    old = lines(folder)
    folder.records_file.write_text("".join([old[0], line + "\n", *old[1:]]))
    with pytest.raises(FolderDamaged, match=r"line 2 of .*records.jsonl is not a record"):
        continued(folder)


FIGURES = [
    ("upper_loss", "text"),
    ("upper_loss", [1]),
    ("upper_loss", float("nan")),
    ("communications", None),
    ("communications", 10**400),
    ("wall_seconds", ...),
    ("status", "text"),
    ("status", "diverged"),
    ("x_sha256", 5),
]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"samples": ...}, "samples is missing"),
        ({"wall_seconds": ...}, "wall_seconds is missing"),
        ({"samples": -1}, "'samples' must be a whole number of at least 0, but is -1"),
        ({"wall_seconds": None}, "'wall_seconds' must be a finite number, but is None"),
        ({"phi": [1]}, "'phi' must be a finite number or null, but is [1]"),
        ({"reason": 5}, "'reason' must be text, but is 5"),
        ({"status": "gone"}, "status must be finished or diverged, but is 'gone'"),
        ({"status": "diverged"}, "status is 'diverged', but reason is missing"),
    ],
)
def test_what_is_wrong_with_a_record_is_said(changes: dict, said: str) -> None:
    record = {key: value for key, value in {**made_record(1), **changes}.items() if value is not ...}
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        read_record(json.dumps(record).encode())


@pytest.mark.parametrize("at", [1, -1])
@pytest.mark.parametrize(("key", "value"), FIGURES)
def test_a_record_with_a_foreign_figure_is_named(key: str, value: object, at: int, tmp_path: Path, capsys) -> None:
    folder = stopped(tmp_path / "run")
    rows = [json.loads(line) for line in lines(folder)]
    rows[at][key] = value
    rows[at] = {name: each for name, each in rows[at].items() if each is not ...}
    folder.records_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(FolderDamaged, match=rf"line {at % len(rows) + 1} of .* is not a record, since .*; put it back"):
        continued(folder)
    assert plot.main([str(folder.path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("content", [b"another", b"", None])
def test_a_result_of_another_run_is_found_out_and_made_again(
    content: bytes | None, tmp_path: Path, whole: dict, capsys
) -> None:
    folder, other = finished(tmp_path / "run"), finished(tmp_path / "other", seed=1)
    right = folder.result_file.read_bytes()
    for again in (by_command, lambda path: run_experiment(out=path, resume=True, progress=False)):
        if content is None:
            folder.result_file.unlink()
        else:
            folder.result_file.write_bytes(other.result_file.read_bytes() if content == b"another" else content)
            with pytest.raises(FolderDamaged, match=r"result.npz is .*: resuming the run makes it again"):
                load(folder.path).x.sum()
        again(folder.path)
        assert folder.result_file.read_bytes() == right
        assert [json.loads(line)["round"] for line in lines(folder)] == ROUNDS
        assert folder.proven_records()[-1]["records_sha256"] == whole["records_sha256"]
    capsys.readouterr()
    by_command(folder.path)
    assert "finished before" in capsys.readouterr().err


def by_command(path: Path) -> None:
    assert main(["--out", str(path), "--resume"]) == 0


def test_what_stands_after_the_end_is_found_out(tmp_path: Path) -> None:
    folder = finished(tmp_path / "run")
    for more in ("?", "{}\n", lines(folder)[-1], "\n\n"):
        before = folder.records_file.read_text()
        folder.records_file.write_text(before + more)
        with pytest.raises(FolderDamaged, match=r"; put it back as it was, or remove"):
            folder.proven_records()
        folder.records_file.write_text(before)


def test_a_config_made_shorter_by_hand_is_found_out(tmp_path: Path, capsys) -> None:
    folder = stopped(tmp_path / "run")
    folder.config_file.write_text(folder.config_file.read_text().replace("rounds: 60", "rounds: 25"))
    assert main(["--out", str(folder.path), "--resume"]) == 2
    assert "rounds: must be more than what the run has already used, 30, but got 25" in capsys.readouterr().err


DIVERGED = ('"finished"', '"diverged", "reason": "x is not finite"')


@pytest.mark.parametrize("change", [("upper_loss", "upper_lost"), ("0.", "1."), DIVERGED])
def test_records_of_a_finished_run_that_were_changed_are_found_out(change: tuple[str, str], tmp_path: Path) -> None:
    folder = finished(tmp_path / "run")
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
