"""Within a process that is to suffer: a fault at the n-th call of something that a run does.

python -c 'from hooks import begin; begin()' '{"at": "fsync", "count": 3, "do": "SIGKILL"}' run rounds=30 …
"""

import errno
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DO: dict[str, Callable[[], None]] = {}


def does(function: Callable[[], None]) -> Callable[[], None]:
    DO[function.__name__] = function
    return function


def no_space() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@does
def disk_full() -> None:
    """From now on, nothing can be made durable."""
    os.fsync = lambda file: no_space()


@does
def read_only() -> None:
    """From now on, nothing can be opened for writing."""
    real = Path.open

    def guarded(self: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        if set(mode) & set("wax+"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(self, mode, *args, **more)

    Path.open = guarded  # type: ignore[method-assign,assignment]


@does
def no_handles() -> None:
    """From now on, no file can be opened at all: the limit is what is open."""
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@does
def no_memory() -> None:
    """From now on, the process can't grow."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 2**16
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@does
def clock_back() -> None:
    """The clock on the wall jumps to 1970 and then to 2100."""
    real, jumps = time.time, [0.0, 4e9]
    time.time = lambda: real() % 1000 + jumps[int(real() * 10) % 2]


@does
def storm() -> None:
    """Signals of all kinds, faster than anybody can handle them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)


def happen(what: str) -> None:
    if what in DO:
        DO[what]()
    else:
        os.kill(os.getpid(), getattr(signal, what))


def install(at: str, count: int, do: str, after: bool = False) -> None:
    """Let the fault happen at the `count`-th call of what `at` names, before the call or after it."""
    from fedmbo_ray.runs.evaluation import Evaluation
    from fedmbo_ray.runs.folder import RunFolder
    from fedmbo_ray.runs.loop import Loop

    places: dict[str, tuple[Any, str]] = {
        "fsync": (os, "fsync"),
        "rename": (Path, "replace"),
        "remove": (Path, "unlink"),
        "record": (RunFolder, "append"),
        "checkpoint": (RunFolder, "save"),
        "round": (Loop, "_next"),
        "figures": (Evaluation, "figures"),
        "exact": (Evaluation, "exact"),
        "result": (RunFolder, "save_result"),
    }
    owner, name = places[at]
    real, left = getattr(owner, name), [count]

    def watched(*args: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and not after:
            happen(do)
        result = real(*args, **more)
        if left[0] == 0 and after:
            happen(do)
        return result

    setattr(owner, name, watched)


def begin() -> None:
    spec, command, *words = sys.argv[1:]
    from fedmbo_ray.core.entry import enter

    if spec != "null":
        install(**json.loads(spec))
    sys.argv = ["fedmbo", *words]
    enter(command)
