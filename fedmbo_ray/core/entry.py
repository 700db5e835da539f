"""Where a process that runs a command begins and ends: signals are handled before the first import."""

import atexit
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import NoReturn

own: list[str] = []  # the command that this process was started for, if any: this command may end the process


def enter(command: str = "main") -> NoReturn:
    """Run a command of `fedmbo_ray.cli`, and end the process with its exit code.

    Before the command's work and after it, a signal ends the process silently; during the work, the command handles it.
    """
    # One thread is enough, and each takes 32 MB; if there is no memory for them, OpenBLAS tries again for ever.
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
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` ignores SIGHUP
            signal.signal(number, handler)


def end(code: int) -> NoReturn:
    """End the process after its output is written and exit functions are called.

    Python's own shutdown aborts if a thread is still importing something, and can be interrupted.
    """
    handle(lambda number, frame: os._exit(code))
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, AttributeError):  # nobody reads it, or the stream does not exist
            code = code or 120  # the code that Python uses
    os._exit(code)
