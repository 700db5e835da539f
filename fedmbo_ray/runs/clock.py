"""How long a run has taken, and torch on one thread while it computes."""

import threading
from types import TracebackType

import torch

from fedmbo_ray.federation.execution import Backend, Seconds


class Clock:
    """The seconds of one run, and those that its processor has spent on it; it stands still between rounds.

    Where runs share a thread, both leave out what others do while the run waits (`Backend.away`). Client actors are
    other processes: the run waits for them on the wall, and what their processors spend is not in it.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend, self.total = backend, Seconds()  # up to the last stop
        self.since: Seconds | None = None

    def _now(self) -> Seconds:
        return Seconds.now().minus(self.backend.away)

    def __enter__(self) -> None:
        self.since = self._now()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.total, self.since = self.read(), None

    def read(self) -> Seconds:
        """Those so far."""
        return self.total if self.since is None else self.total.plus(self._now().minus(self.since))


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
