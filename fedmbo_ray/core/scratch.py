"""Temporary folders that name the process that made them, so that those of killed processes can be removed."""

import os
import re
import shutil
import tempfile
from pathlib import Path

MADE = re.compile(r"fedmbo-(?P<space>\d+)-(?P<process>\d+)-")


def scratch_folder() -> Path:
    """A new folder for this process; folders that dead processes of this user have left are removed first."""
    place = Path(tempfile.gettempdir())
    remove_stale(place)
    return Path(tempfile.mkdtemp(prefix=f"fedmbo-{process_space()}-{os.getpid()}-", dir=place))


def remove_stale(place: Path) -> None:
    for path in place.glob("fedmbo-*"):
        if is_stale(path):
            shutil.rmtree(path, ignore_errors=True)


def is_stale(path: Path) -> bool:
    """Whether a folder is this user's, and the process that made it is dead."""
    match = MADE.match(path.name)
    if match is None or int(match["space"]) != process_space():
        return False
    try:
        own = path.lstat().st_uid == os.getuid() and path.is_dir() and not path.is_symlink()
    except OSError:  # another process has removed it
        return False
    return own and not Path(f"/proc/{match['process']}").exists()


def process_space() -> int:
    """Identifies the container that numbers the processes; containers may share a folder, but not their numbers."""
    return os.stat("/proc/self/ns/pid").st_ino
