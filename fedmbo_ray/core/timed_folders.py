"""Folders named by the time at which they were begun; each belongs to one process."""

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.interruptions import last_step
from fedmbo_ray.core.io import own_folder

TIMED = re.compile(r"-?(\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)(?:-(\d+))?$")


def new_timed(parent: Path, name: str = "") -> Path:
    """A new folder `<name>-<time>` for its owner; the next of the same second is `<name>-<time>-2`, and so on."""
    start = f"{name}-" * bool(name) + time.strftime("%Y-%m-%d_%H-%M-%S")
    names = (start if number == 1 else f"{start}-{number}" for number in count(1))
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return next(parent / each for each in names if _made(parent / each))
    except OSError as error:
        raise ConfigError(f"--out must be a folder to write to, but {parent / start}: {error.strerror}") from None


def require_writable(folder: Path, what: str = "out") -> None:
    """Make a folder if there is none; raise a ConfigError if no file can be written to it."""
    try:
        own_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"{what} must be a folder to write to, but {folder}: {error.strerror}") from None


def _made(path: Path) -> bool:
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def untimed(name: str) -> str:
    """A folder's name without the time."""
    return TIMED.sub("", name)


def newest_timed(parent: Path, name: str, has: str) -> Path | None:
    """The last folder `<name>-<time>` that has a file of some name; None if there is none."""
    found = [(match, path) for path in parent.glob("*") if (match := TIMED.search(path.name)) and (path / has).exists()]
    own = [(match[1], int(match[2] or 1), path) for match, path in found if untimed(path.name) == name]
    return max(own)[2] if own else None


@contextmanager
def gone_if_empty(folder: Path) -> Iterator[None]:
    """In this context, an error or a signal removes the folder if it is empty and its name is a time."""

    def remove() -> None:
        if TIMED.search(folder.name):
            with suppress(OSError):
                folder.rmdir()
                folder.parent.rmdir()

    with last_step(remove):
        try:
            yield
        except BaseException:
            remove()
            raise
