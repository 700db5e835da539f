"""Where a process that runs a command begins and ends: signals are handled before the first import."""

import atexit
import os
import sys
from importlib import import_module
from typing import NoReturn

from fedmbo_ray.core.interruptions import handle  # needs the standard library only


def enter(command: str = "main") -> NoReturn:
    """Run a command of `fedmbo_ray.cli`, and end the process with its exit code.

    Before the command's work and after it, a signal ends the process silently; during the work, the command handles it.
    """
    # One thread is enough, and each takes 32 MB; if there is no memory for them, OpenBLAS tries again for ever.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    handle(lambda number, frame: os._exit(128 + number))
    if sys.stderr is None:  # by `2>&-`; without this, the first file that is opened would become descriptor 2
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        code = import_module(f"fedmbo_ray.cli.{command}").main()
    except SystemExit as asked:  # by --help, or with words by a plug-in
        code = exit_code(asked.code)
    except (MemoryError, SystemError):  # the second is what Python raises if it has no memory within itself
        print("error: there is not enough memory to import what the command needs", file=sys.stderr)
        code = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    end(code)


def exit_code(asked: object) -> int:
    """The code that `sys.exit(asked)` means; anything but a number is printed."""
    if asked is None or isinstance(asked, int):
        return asked or 0
    print(asked, file=sys.stderr)
    return 1


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
