"""What SIGINT, SIGTERM and SIGHUP do: they end the process at once, or after its state has been saved."""

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import NoReturn, TypeVar

from fedmbo_ray.core.process_state import ENDING_SIGNALS, Handler, say_now

T = TypeVar("T")

AT_ONCE = 1.0  # seconds after the first signal; earlier signals count as the same request
SOON = 0.5  # seconds; an interrupted command that needs longer to end says so
AGAIN = 0.01  # seconds after which a lost signal is repeated

stakes: list[object] = []  # one for each `at_stake` that is open
last_steps: list[Callable[[], None]] = []  # what to do before the process ends at once
hints: list[Callable[[], str]] = []  # how to continue a command; if there is none, the process is somebody else's


@contextmanager
def at_stake() -> Iterator[None]:
    """In this context, something must be saved, stopped or reported: no signal may end the process at once."""
    with _listed(stakes, object()):
        yield


def last_step(step: Callable[[], None]) -> AbstractContextManager[None]:
    """In this context, `step` is called before `leave` ends the process."""
    return _listed(last_steps, step)


def may_leave(hint: Callable[[], str]) -> AbstractContextManager[None]:
    """In this context, the process is a command's own and may be ended at once; `hint` says how to continue."""
    return _listed(hints, hint)


@contextmanager
def _listed(items: list[T], item: T) -> Iterator[None]:
    items.append(item)
    try:
        yield
    finally:
        items.remove(item)


def leave(code: int, line: str) -> NoReturn:
    """Print a line and how to continue, and end the process now, even if printing fails.

    No exception is raised for this: within an import, a library could turn it into an error of another kind.
    """
    try:
        for step in last_steps:
            step()
        say_now(line + (hints[-1]() if hints else ""), show_cursor=True)
    finally:
        os._exit(code)


class Interruptions:
    """A signal handler that ends a command's process if nothing is at stake; else it raises KeyboardInterrupt once.

    A signal is never lost: if Python can't raise an exception, as in a finalizer, the signal is sent again.
    """

    def __init__(self) -> None:
        self.count, self.first, self.number = 0, 0.0, int(signal.SIGINT)
        self.told = self.over = False
        self.told_others = sys.unraisablehook

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            self.first, self.number = time.monotonic(), number
            if hints and not stakes:
                leave(128 + number, "interrupted")
            if not self.told:
                self.told = True
                _thread.start_new_thread(self._tell, ())
            raise KeyboardInterrupt
        if self.count >= 3 and time.monotonic() > self.first + AT_ONCE:
            leave(128 + number, "ended at once; the last rounds may be lost")

    def _tell(self) -> None:
        for_main_thread()
        time.sleep(SOON)
        if not self.over:
            say_now("interrupted; saving ...")

    def unraisable(self, lost: "sys.UnraisableHookArgs") -> None:
        """As sys.unraisablehook: Python is about to print an exception and continue."""
        if self.count and issubclass(lost.exc_type, KeyboardInterrupt):
            self.count = 0
            _thread.start_new_thread(self._repeat, ())  # `threading` may be what the finalizer interrupted
        else:
            self.told_others(lost)

    def _repeat(self) -> None:
        for_main_thread()
        time.sleep(AGAIN)
        os.kill(os.getpid(), self.number)


def for_main_thread() -> None:
    """To be called in other threads: they then receive no signals, even if a C library changes signal handling."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)


@contextmanager
def interruptible(handler: Interruptions) -> Iterator[None]:
    """In this context, SIGINT, SIGTERM and SIGHUP end the work as Ctrl-C does; afterwards the old handlers are back.

    What is under way is saved after the first signal, and further ones are ignored. Only the third, if it comes more
    than a second after the first, ends the process at once: files are written whole or not at all.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield
        return
    hook, sys.unraisablehook = sys.unraisablehook, handler.unraisable
    before = handle(handler)
    try:
        yield
    finally:
        handler.over = True
        sys.unraisablehook = hook
        for number, old in before.items():
            signal.signal(number, old)


def handle(handler: Callable[[int, FrameType | None], None]) -> dict[int, Handler]:
    """Install a handler for the signals that end a process; returns the handlers that were there.

    A signal that is ignored, as SIGHUP is under `nohup`, stays ignored; except SIGINT, which shells ignore in every
    background job of a script.
    """
    before: dict[int, Handler] = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    heard = {number: old for number, old in before.items() if number == signal.SIGINT or old is not signal.SIG_IGN}
    for number in heard:
        signal.signal(number, handler)
    return heard


@contextmanager
def deferred() -> Iterator[Callable[[], bool]]:
    """In this context, KeyboardInterrupt is raised only at the end; yields a function that says whether it will be.

    A second interruption, more than a second after the first, is raised at once.
    """
    noted: list[float] = []
    main = threading.current_thread() is threading.main_thread()
    found = {int(number): signal.getsignal(number) for number in ENDING_SIGNALS} if main else {}
    before = {number: handler for number, handler in found.items() if callable(handler)}

    def note(number: int, frame: FrameType | None) -> None:
        try:
            before[number](number, frame)
        except KeyboardInterrupt:
            noted.append(time.monotonic())
            if noted[-1] > noted[0] + AT_ONCE:
                raise

    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: bool(noted)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if noted:
        raise KeyboardInterrupt
