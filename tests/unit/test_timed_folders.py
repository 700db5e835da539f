"""Folders named by the time: one for each start, also in the same second."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedmbo_ray.api.study import prepared_study
from fedmbo_ray.api.sweep import prepared_sweep
from fedmbo_ray.cli.run import main
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.timed_folders import gone_if_empty, new_timed, newest_timed, untimed
from fedmbo_ray.sweeps.continuation import newest_folder

NOW = "2026-01-31_12-00-00"


@pytest.fixture(autouse=True)
def one_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: NOW)


def test_starts_in_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as many:
        made = set(many.map(lambda _: new_timed(tmp_path / "sweeps", "a"), range(20)))
    assert {path.name for path in made} == {f"a-{NOW}", *(f"a-{NOW}-{number}" for number in range(2, 21))}
    assert {untimed(path.name) for path in made} == {"a"}
    assert untimed(new_timed(tmp_path).name) == untimed(new_timed(tmp_path).name) == ""


def test_runs_sweeps_and_studies_begun_in_the_same_second_go_side_by_side(tmp_path: Path) -> None:
    words = ["rounds=1", "clients.num_clients=20"]
    assert [main(words), main(words)] == [0, 0]
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {NOW, f"{NOW}-2"}
    first, second = (prepared_sweep(None, [], None, False)[1] for _ in range(2))
    assert (first.path, second.path) == (Path(f"sweeps/quickstart-{NOW}"), Path(f"sweeps/quickstart-{NOW}-2"))
    assert first.name == second.name == "quickstart"
    paths = [prepared_study("theory", "smoke", None, False).path.name for _ in range(2)]
    assert paths == [f"theory-smoke-{NOW}", f"theory-smoke-{NOW}-2"]


def test_the_last_one_is_the_newest_and_of_one_second_the_one_with_the_highest_number(tmp_path: Path) -> None:
    for name in (f"a-{NOW}", f"a-{NOW}-2", f"a-{NOW}-10", "a-2026-01-30_12-00-00-3", f"a-b-{NOW}-11", "a-old"):
        (tmp_path / "sweeps" / name).mkdir(parents=True)
        (tmp_path / "sweeps" / name / "sweep.yaml").touch()
    (tmp_path / "sweeps" / f"a-{NOW}-12").mkdir()  # has come to nothing
    assert newest_folder("a").path.name == f"a-{NOW}-10"
    assert newest_timed(Path("sweeps"), "c", "sweep.yaml") is None


def test_what_comes_to_nothing_leaves_nothing(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        with gone_if_empty(path):
            raise ConfigError("no")

    for path in (new_timed(tmp_path / "sweeps", "a"), new_timed(tmp_path / "runs")):
        (path / "file").touch() if path.parent.name == "runs" else None
        with pytest.raises(ConfigError):
            fails(path)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--out must be a folder to write to, but file/2026-01-31_12-00-00: "):
        new_timed(Path("file"))
