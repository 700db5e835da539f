"""How long a run has taken, and torch on one thread while it computes."""

import threading
import time
from types import TracebackType

import torch

from fedmbo_ray.federation.execution import Backend


class Clock:
    """The seconds of one run, and those that its processor has spent on it; it stands still between rounds.

    Where runs share a thread, a run's own processor time leaves out what others do while it waits (`Backend.away`).
    Client actors are other processes: what they spend is not in it.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.wall = self.cpu = 0.0  # up to the last stop
        self.since: tuple[float, float] | None = None

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), time.thread_time() - self.backend.away

    def __enter__(self) -> None:
        self.since = self._now()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        (self.wall, self.cpu), self.since = self.read(), None

    def read(self) -> tuple[float, float]:
        """Seconds in all, and those of the processor."""
        if self.since is None:
            return self.wall, self.cpu
        now = self._now()
        return self.wall + now[0] - self.since[0], self.cpu + now[1] - self.since[1]


class OneThread(threading.local):
    """Torch computes with one thread while a thread is within, so that bits are the same everywhere.

    Torch keeps the number for each thread. Runs side by side in one enter and leave in any order: the last one to leave
    brings back the number that the first found.
    """

    def __init__(self) -> None:
        self.within, self.before = 0, 1

    def __enter__(self) -> None:
        if self.within == 0:
            self.before = torch.get_num_threads()
            self._set(1)
        self.within += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.within -= 1
        if self.within == 0:
            self._set(self.before)

    def _set(self, number: int) -> None:
        if number != torch.get_num_threads():  # setting it also decides what threads that begin later find
            torch.set_num_threads(number)


ONE_THREAD = OneThread()
