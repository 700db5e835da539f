"""Where a process that runs a command begins: before the first import, signals are taken care of."""

import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import NoReturn


def enter(command: str = "main") -> NoReturn:
    """Run a command of `fedmbo_ray.cli`, and end the process with its exit code.

    Before its work and after it, a signal ends the process without a word; during the work, the command handles it.
    """
    # One thread is used, and each takes 32 MB; where there is no room for them, OpenBLAS asks again for ever.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
            signal.signal(number, leave)
    sys.exit(import_module(f"fedmbo_ray.cli.{command}").main())


def leave(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)
