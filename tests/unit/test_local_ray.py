"""A Ray that is started here: its token, its folder, and who may open what it and runs write."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fedmbo_ray.core.compat import ray_reads_authentication
from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.io import held
from fedmbo_ray.core.timed_folders import new_timed
from fedmbo_ray.runs.local_ray import LONGEST, local_options, require_token, sessions
from fedmbo_ray.runs.ray_session import ray_session
from fedmbo_ray.tracking.connection import make_client

AUTHENTICATION = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in AUTHENTICATION:
        monkeypatch.setenv(name, "")  # to be put back, whatever the test does
        monkeypatch.delenv(name)
    yield
    monkeypatch.undo()
    ray_reads_authentication()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a short name, which everybody may open, in place of /tmp."""
    with TemporaryDirectory(prefix="t", dir="/tmp") as place:
        Path(place).chmod(0o755)
        monkeypatch.setenv("RAY_TMPDIR", place)
        yield Path(place)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def configured() -> dict[str, str]:
    return {name: os.environ[name] for name in AUTHENTICATION if name in os.environ}


def test_every_local_ray_has_a_token_of_its_own(short: Path) -> None:
    tokens = set()
    for _ in range(2):
        with ray_session():
            options = local_options()
            assert options["_node_ip_address"] == "127.0.0.1"
            assert options["include_dashboard"] is False
            assert not any(os.environ["RAY_AUTH_TOKEN"] in str(value) for value in options.values())
            assert configured().keys() == {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}
            tokens.add(os.environ["RAY_AUTH_TOKEN"])
        assert configured() == {}  # and Ray has forgotten it
    assert {len(token) for token in tokens} == {64}
    assert len(tokens) == 2


@pytest.mark.parametrize(
    ("set_by_user", "used"),
    [
        ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "disabled"}),
        ({"RAY_AUTH_TOKEN": "mine"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "mine"}),
        ({"RAY_AUTH_TOKEN_PATH": "/mine"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/mine"}),
    ],
)
def test_what_the_user_has_configured_is_used(
    set_by_user: dict[str, str], used: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in set_by_user.items():
        monkeypatch.setenv(name, value)
    require_token()
    assert configured() == used


def test_rays_sessions_are_below_a_folder_for_one_user(short: Path) -> None:
    place = short / f"fedmbo-{os.getuid()}"
    place.mkdir(mode=0o755)  # of an earlier version, say
    assert sessions() == place / "ray"
    assert mode(place) == 0o700


def test_a_folder_of_somebody_else_is_not_used(short: Path, tmp_path: Path) -> None:
    place = short / f"fedmbo-{os.getuid()}"
    place.symlink_to(tmp_path)
    with pytest.raises(RunFailed, match=f"{place} must be a folder of yours, but is not: set"):
        sessions()
    if os.getuid() == 0:
        place.unlink()
        place.mkdir()
        os.chown(place, 65534, 65534)
        with pytest.raises(RunFailed, match="must be a folder of yours"):
            sessions()


def test_where_paths_of_sockets_would_be_too_long_it_is_in_tmp(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(short / ("long" * 20)))
    found = sessions()
    assert found.parent.parent == Path("/tmp")
    session = f"session_2026-11-18_08-29-11_942171_{os.getpid()}"
    assert len(str(found / session / "sockets" / "plasma_store")) <= LONGEST


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_new_folders_and_databases_are_for_their_owner(
    mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(mask)
    try:
        with held(tmp_path / "runs" / "one"):
            pass
        timed = new_timed(tmp_path / "runs")
        shared = tmp_path / "shared"
        shared.mkdir()
        as_made = mode(shared)
        with held(shared):
            pass
        make_client(f"sqlite:///{tmp_path}/mlflow.db")
    finally:
        os.umask(before)
    assert mode(tmp_path / "runs" / "one") == mode(timed) == 0o700
    assert mode(tmp_path / "mlflow.db") == 0o600
    assert mode(shared) == as_made  # what was there before stays as open as it was
