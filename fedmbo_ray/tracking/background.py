"""MLflow kept up to date while a sweep runs, and after its server has been away."""

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from fedmbo_ray.federation import RunFailed
from fedmbo_ray.tracking.tracker import Tracker

T = TypeVar("T")

SECONDS_BETWEEN_LOOKS = 2.0
PATIENCE = 120.0  # seconds for a server to come back when everything else is done


class Following:
    """Keeps MLflow up to date in a thread of its own, while a sweep runs; what fails is tried again."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.over, self.away = tracker, threading.Event(), False
        self.thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "Following":
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.over.set()
        self.thread.join(timeout=PATIENCE)
        if kind is not None:
            self.attempt(self.tracker.interrupt)

    def _follow(self) -> None:
        while not self.over.wait(SECONDS_BETWEEN_LOOKS):
            self.attempt(self.tracker.update)

    def attempt(self, step: Any) -> bool:
        """Whether it went well; a server that is away is told of once."""
        try:
            step()
        except Exception as error:  # of MLflow, of its database, of the network
            if not self.away:
                said = " ".join(str(error).split())[:200]
                print(
                    f"MLflow at {self.tracker.uri} is away, records wait in the sweep's folder ({said})",
                    file=sys.stderr,
                )
            self.away = True
            self.tracker.runs.clear()  # what it has after all is to be asked again
            return False
        if self.away:
            print(f"MLflow at {self.tracker.uri} is back", file=sys.stderr)
        self.away = False
        return True

    def conclude(self) -> bool:
        """Bring everything to MLflow; False if it stays away."""
        self.over.set()
        self.thread.join(timeout=PATIENCE)
        return patiently(lambda: self.attempt(self.tracker.conclude))


def patiently(attempt: Callable[[], bool]) -> bool:
    """Whether it went well at last."""
    deadline = time.monotonic() + PATIENCE
    while not attempt():
        if time.monotonic() > deadline:
            return False
        time.sleep(1)
    return True


def insist(step: Callable[[], T], uri: str) -> T:
    """What a step returns that may have to wait for MLflow; raises RunFailed if it stays away."""
    from mlflow.exceptions import MlflowException

    found: list[T] = []

    def attempt() -> bool:
        try:
            found.append(step())
        except (MlflowException, OSError):
            return False
        return True

    if not patiently(attempt):
        raise RunFailed(f"MLflow at {uri} stayed away: continue with --resume")
    return found[0]
