"""Updates MLflow while a sweep or a run is going on, and after its server could not be reached."""

import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Protocol, TypeVar

from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.interruptions import at_stake, for_main_thread
from fedmbo_ray.tracking.connection import FILE, mlflow_at_hand

T = TypeVar("T")

SECONDS_BETWEEN_LOOKS = 2.0
PATIENCE = 120.0  # seconds to wait for a server when everything else is done
# packages whose errors come from MLflow or from what it uses
PACKAGES = {"mlflow", "sqlalchemy", "sqlite3", "requests", "urllib3", "boto3", "botocore", "google", "azure"}


class Tracker(Protocol):
    """Updates MLflow from a folder; every method except `forget` may fail and be called again."""

    @property
    def uri(self) -> str: ...

    @property
    def page(self) -> str:
        """The path of the tracked run in MLflow's user interface."""
        ...

    def prepare(self) -> None:
        """Do slow work beforehand: imports, and making MLflow's database. Nothing is shown in MLflow yet."""
        ...

    def update(self) -> None:
        """Send what is new to MLflow."""
        ...

    def conclude(self) -> None:
        """Send what is new to MLflow, and mark the end."""
        ...

    def interrupt(self) -> None:
        """Tell MLflow that the run was interrupted and may be resumed later."""
        ...

    def forget(self) -> None:
        """Forget what the server has, and ask it again next time."""
        ...


def unreachable(error: Exception) -> bool:
    """Whether an error comes from MLflow, its database, its storage or the network, so that a later try may succeed."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(packages & PACKAGES) or isinstance(error, ConnectionError | TimeoutError | socket.gaierror)


class BackgroundTracking:
    """Updates MLflow in a thread; a failed update is tried again."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.over, self.away, self.said = tracker, threading.Event(), False, ""
        self.shown = False  # in MLflow
        self.thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "BackgroundTracking":
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.over.set()
        if kind is not None and not self.shown:
            return
        with at_stake():
            self.thread.join(timeout=PATIENCE)
            if kind is not None:
                self._meanwhile(self.tracker.interrupt)

    def _follow(self) -> None:
        for_main_thread()
        self._meanwhile(self.tracker.prepare)
        with at_stake():
            self.shown = not self.over.is_set()
            while not self.over.wait(SECONDS_BETWEEN_LOOKS):
                self._meanwhile(self.tracker.update)

    def _meanwhile(self, step: Callable[[], None]) -> None:
        """Attempt a step while the sweep runs: an error is printed once, and raised by `conclude` if it persists."""
        try:
            self.attempt(step)
        except Exception as error:
            said = f"MLflow is not brought up to date ({type(error).__name__}: {in_one_line(error)})"
            if said != self.said:
                print(said, file=sys.stderr)
            self.said = said

    def attempt(self, step: Callable[[], None]) -> bool:
        """Whether a step succeeded; if the server can't be reached, that is printed once. Other errors are raised."""
        try:
            with mlflow_at_hand():
                step()
        except Exception as error:
            self.tracker.forget()
            if not unreachable(error):
                raise
            if not self.away:
                print(
                    f"MLflow at {self.tracker.uri} can't be reached, records wait in the folder ({in_one_line(error)})",
                    file=sys.stderr,
                )
            self.away = True
            return False
        if self.away:
            print(f"MLflow at {self.tracker.uri} is reachable again", file=sys.stderr)
        self.away = False
        return True

    def conclude(self) -> bool:
        """Send everything to MLflow; False if the server can't be reached for too long."""
        self.over.set()
        self.thread.join(timeout=PATIENCE)
        with at_stake():
            return retried(lambda: self.attempt(self.tracker.conclude))


def in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def retried(attempt: Callable[[], bool]) -> bool:
    """Whether an attempt succeeds within `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    while not attempt():
        if time.monotonic() > deadline:
            return False
        time.sleep(1)
    return True


def wait_for_mlflow(step: Callable[[], T], uri: str) -> T:
    """The result of a step that needs MLflow; raises RunFailed if the server can't be reached for too long."""
    found, said = list[T](), ""

    def attempt() -> bool:
        nonlocal said
        try:
            found.append(step())
        except Exception as error:
            if not unreachable(error):
                raise
            said = in_one_line(error)
            return False
        return True

    with mlflow_at_hand():
        if not retried(attempt):
            raise RunFailed(f"MLflow at {uri} can't be reached: continue with --resume ({said})")
    return found[0]


def where_to_look(tracker: Tracker) -> str:
    """How to open MLflow, in one line."""
    if tracker.uri.startswith("http"):
        return f"MLflow: {tracker.uri}/{tracker.page}"
    return f"MLflow: {page_command(tracker.uri)}, then http://127.0.0.1:5000/{tracker.page}"


def page_command(uri: str) -> str:
    """The command that opens MLflow's page for a database."""
    if not uri.startswith(FILE):
        return f"mlflow ui --host 127.0.0.1 --backend-store-uri {quote(uri)}"
    file = Path(uri.removeprefix(FILE))
    here = file.absolute() == Path("mlflow.db").absolute()
    return "fedmbo ui" if here else f"fedmbo ui --store {quote(str(file))}"
