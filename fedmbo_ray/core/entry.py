"""Where a process that runs a command begins and ends: before the first import, signals are taken care of."""

import atexit
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import NoReturn

own: list[str] = []  # the command that this process was started for, if it was: it may end it


def enter(command: str = "main") -> NoReturn:
    """Run a command of `fedmbo_ray.cli`, and end the process with its exit code.

    Before its work and after it, a signal ends the process without a word; during the work, the command handles it.
    """
    # One thread is used, and each takes 32 MB; where there is no room for them, OpenBLAS asks again for ever.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    handle(lambda number, frame: os._exit(128 + number))
    own.append(command)
    try:
        code = import_module(f"fedmbo_ray.cli.{command}").main()
    except SystemExit as asked:  # by --help
        code = int(asked.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    end(code)


def handle(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
            signal.signal(number, handler)


def end(code: int) -> NoReturn:
    """End the process, its output written and exit functions called.

    Python's own way down aborts where a thread is still importing something, and can be interrupted.
    """
    handle(lambda number, frame: os._exit(code))
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, AttributeError):  # nobody reads it, or there is none
            code = code or 120  # as Python has it
    os._exit(code)
