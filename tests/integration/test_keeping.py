"""Trials on machines that don't see the sweep's folder: what they write is kept at home, and they go on from there."""

from pathlib import Path
from typing import Any

import pytest
import ray
from tasks import tiny_config

from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.io import new_identity
from fedmbo_ray.runs.driver import nodes_at_hand
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.loop import run
from fedmbo_ray.sweeps.folder import SweepFolder, TrialFolder
from fedmbo_ray.sweeps.remote_folder import Copy, Home, Keeper, files_of, home_of

CONFIG = tiny_config(rounds=12, record={"every": 1, "checkpoint_every": 4})


@pytest.fixture
def home(cluster: None, tmp_path: Path) -> Home:
    (tmp_path / "sweep").mkdir()
    new_identity(tmp_path / "sweep" / "identity")
    keeper = ray.remote(Keeper).options(num_cpus=0).remote(str(tmp_path / "sweep"))
    return Home(str(tmp_path / "sweep"), "that of another folder at the same path", keeper)


def rounds(folder: RunFolder, copy: Any, count: int) -> list[dict[str, Any]]:
    """Some records of a run, each kept."""
    records = []
    for record in run(CONFIG, folder, folder.has_run()):
        copy()
        records.append(record)
        if len(records) == count:
            break
    return records


def test_a_trial_goes_on_elsewhere_from_what_it_has_sent(home: Home, tmp_path: Path) -> None:
    with home.trial("00000", 1) as (folder, keep):
        folder.begin({"beta": 0.1})
        rounds(folder.run(0), keep, 7)
        lost = folder
    assert not lost.path.exists()
    with home.trial("00000", 1) as (folder, keep):
        assert folder.path != lost.path
        assert folder.point == {"beta": 0.1}
        assert [record["round"] for record in folder.run(0).records()] == list(range(7))
        last = rounds(folder.run(0), keep, -1)[-1]
    undisturbed = RunFolder(tmp_path / "undisturbed")
    *_, expected = run(CONFIG, undisturbed)
    assert last["x_sha256"] == expected["x_sha256"]
    at_home = TrialFolder(tmp_path / "sweep" / "trials" / "00000", 1)
    assert at_home.status == "finished"
    without_time = [
        [{key: value for key, value in record.items() if not key.endswith("_seconds")} for record in each.records()]
        for each in (at_home.run(0), undisturbed)
    ]
    assert without_time[0] == without_time[1]
    assert files_of(at_home.run(0).path) == files_of(undisturbed.path)  # old checkpoints have gone here, too


def test_a_cluster_that_the_caller_has_joined_is_asked_what_it_has(cluster: str, tmp_path: Path, monkeypatch) -> None:
    """Without $RAY_ADDRESS: it is known to whoever called `ray.init`."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (have,) = nodes_at_hand()
    assert (have["CPU"], have["GPU"]) == (8, 2)
    new_identity(tmp_path / "identity")
    home = home_of(SweepFolder(tmp_path))
    assert home.keeper is not None
    home.close()
    monkeypatch.setattr("fedmbo_ray.runs.driver.STARTED", [cluster])
    assert home_of(SweepFolder(tmp_path)).keeper is None


def test_of_two_copies_the_older_is_refused(home: Home, tmp_path: Path) -> None:
    first, second = (
        Copy(home.keeper, TrialFolder(tmp_path / name / "00000", 1)) for name in ("taken for lost", "other")
    )
    for copy in (first, second):
        copy.folder.begin({})
    second.send()
    with pytest.raises(RunFailed, match="continues on another node"):
        first.send()


def test_of_a_file_that_has_grown_only_the_end_is_sent(cluster: None, tmp_path: Path) -> None:
    sent = []

    class Listening(Keeper):
        def store(self, trial: str, owner: str, pieces: Any, gone: list[str]) -> bool:
            sent.append((pieces, gone))
            return super().store(trial, owner, pieces, gone)

    keeper = Listening(str(tmp_path / "sweep"))
    folder = TrialFolder(tmp_path / "away" / "00000", 1)
    copy = Copy(Calls(keeper), folder)
    folder.begin({})
    folder.note_system({"round": 0})
    copy.send()
    folder.note_system({"round": 1})
    folder.point_file.unlink()
    copy.send()
    copy.send()
    (pieces, gone), home = sent[-1], SweepFolder(tmp_path / "sweep").path / "trials" / "00000"
    assert len(sent) == 2
    assert [(piece.path, piece.data) for piece in pieces] == [("system.jsonl", b'{"round": 1}\n')]
    assert gone == ["point.json"]
    assert TrialFolder(home, 1).system() == [{"round": 0}, {"round": 1}]
    assert not (home / "point.json").exists()
    folder.system_file.unlink()
    folder.note_system({"round": 0, "longer": "than it was before it was written anew"})
    copy.send()
    assert sent[-1][0][0].start == 0
    folder.note_system({"round": 1})
    copy.send()
    keeper.store("00000", copy.owner, *sent[-1])  # said twice
    assert [each["round"] for each in TrialFolder(home, 1).system()] == [0, 1]


class Calls:
    """An actor's methods, called here."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> Any:
        return type("Method", (), {"remote": staticmethod(lambda *args: ray.put(getattr(self.actor, name)(*args)))})


def test_a_folder_that_is_seen_is_used_itself(tmp_path: Path) -> None:
    new_identity(tmp_path / "identity")
    home = Home(str(tmp_path), SweepFolder(tmp_path).identity, "a keeper that nobody calls")
    with home.trial("00000", 1) as (folder, _):
        assert folder.path == tmp_path / "trials" / "00000"
