"""A download that is killed."""

import signal
from pathlib import Path

from forked import Forks

from fedmbo_ray.data.downloads import fetch

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
