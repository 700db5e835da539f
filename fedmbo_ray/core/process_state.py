"""What a whole process shares, changed for a while and put back: environment, signal handlers, hooks, log levels."""

import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Handler = Callable[[int, FrameType | None], object] | int | None
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR = "\x1b[?25h"  # a live table hides it

masks: list[set[int | signal.Signals]] = []  # the signals that were blocked before each `held_back` that is open


@contextmanager
def environment_with(values: dict[str, str]) -> Iterator[None]:
    """In this context, the environment has these variables; at the end, the old values are restored."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        _put_back(before)


@contextmanager
def environment_kept(*beginnings: str) -> Iterator[None]:
    """Afterwards, variables whose names begin like this are what they were before; others may have been changed."""
    before: dict[str, str | None] = {**os.environ}
    try:
        yield
    finally:
        _put_back({key: before.get(key) for key in {**before, **os.environ} if key.startswith(beginnings)})


def _put_back(before: dict[str, str | None]) -> None:
    for key, value in before.items():
        if value is None:
            os.environ.pop(key, None)
        elif os.environ.get(key) != value:
            os.environ[key] = value


@contextmanager
def handlers_without(package: str) -> Iterator[None]:
    """Afterwards, signals and errors are handled as before where a package has put handlers of its own in place."""
    signals = (*ENDING_SIGNALS, signal.SIGUSR1)  # SIGUSR1: Ray Tune
    before, hook = {number: signal.getsignal(number) for number in signals}, sys.excepthook
    try:
        yield
    finally:
        if _belongs(sys.excepthook, package):
            sys.excepthook = hook
        now = {number: signal.getsignal(number) for number in signals}
        put_in_place({number: before[number] if _belongs(now[number], package) else now[number] for number in now})


def put_in_place(handlers: Mapping[int, Handler]) -> None:
    """Install these signal handlers, even if a C library has replaced them without Python noticing."""
    if threading.current_thread() is threading.main_thread():  # only the main thread may
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)


@contextmanager
def held_back(number: int) -> Iterator[None]:
    """In this context, a signal waits. At the end, its Python handler is installed again.

    A C library may have replaced the handler without Python noticing. Threads that are started in this context never
    receive the signal; processes do.
    """
    handler, before = signal.getsignal(number), signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    masks.append(before)
    try:
        yield
    finally:
        put_in_place({number: handler})
        masks.remove(before)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _receive() -> None:
    """Called in a forked process: it receives signals that are held back here."""
    if masks:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks[0])


os.register_at_fork(after_in_child=_receive)


def _belongs(handler: object, package: str) -> bool:
    return (getattr(handler, "__module__", None) or "").partition(".")[0] == package


class OwnStderr(io.TextIOWrapper):
    """A command's stderr, with a file descriptor of its own."""


class _Lenient(io.FileIO):
    """A file that drops what can't be written, because the terminal is closed or the disk is full."""

    def write(self, data: "ReadableBuffer", /) -> int:
        with suppress(OSError):
            return super().write(data)
        return len(memoryview(data))


@contextmanager
def own_stderr() -> Iterator[None]:
    """In this context, Python writes to a copy of file descriptor 2, so that descriptor 2 itself can be silenced.

    What can't be written is dropped: a command whose terminal is closed must still save its state.
    """
    before = sys.stderr
    try:
        copy = os.dup(2) if before.fileno() == 2 else None
    except (AttributeError, OSError):  # there is none, or it is no file
        copy = None
    if copy is None:
        yield
        return
    # Never closed: faulthandler keeps its number.
    binary = io.BufferedWriter(_Lenient(copy, "w", closefd=False))
    sys.stderr = OwnStderr(binary, before.encoding, "backslashreplace", line_buffering=True)
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = before


def say_now(line: str, show_cursor: bool = False) -> None:
    """Write a line to stderr without buffering, as a signal handler must; it is dropped if it can't be written."""
    if sys.stderr is None:  # descriptor 2 may then be any file
        return
    try:
        number = sys.stderr.fileno()
    except (AttributeError, OSError):  # it is no file
        number = 2
    cursor = SHOW_CURSOR if show_cursor and os.isatty(number) else ""
    with suppress(OSError):
        os.write(number, f"{cursor}{line}\n".encode(errors="backslashreplace"))


@contextmanager
def libraries_silenced() -> Iterator[None]:
    """In this context, what compiled libraries write to descriptor 2 is dropped, if Python's stderr is another one.

    Ray's library writes the same lines to its log file. What a crash would write ("Fatal Python error", "terminate
    called") is lost: only the exit code then shows the crash.
    """
    if not isinstance(sys.stderr, OwnStderr):
        yield
        return
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextmanager
def log_levels_kept(*names: str) -> Iterator[None]:
    """Afterwards, these loggers have the levels that they had before."""
    before = {name: logging.getLogger(name).level for name in names}
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
