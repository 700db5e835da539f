"""Whether the Ray that this process uses is alive: without its head, calls never return, and Ray ends the process."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import ray
from ray import ObjectRef

from fedmbo_ray.core.compat import ray_processes
from fedmbo_ray.core.errors import RunStopped
from fedmbo_ray.core.interruptions import hints, leave

BETWEEN, BETWEEN_NODES = 1.0, 10.0  # seconds between checks; at the second interval, the head is asked, too
AWAY = 35.0  # seconds for which a cluster's head may be unreachable; after 60, Ray's library ends this process
TO_END = 15.0  # seconds in which this process may end by itself when Ray is dead; some calls then never return


class RayHealth:
    """Checks what Ray needs: the processes that were started here, or else a cluster's head and this machine's node."""

    def __init__(self) -> None:
        context = ray.get_runtime_context()
        self.address, self.node = context.gcs_address, context.get_node_id()
        self.own = own_processes()  # without one of these, a Ray that was started here is dead
        self.looked = self.asked = time.monotonic()
        self.away: float | None = None  # since when the head has not been reachable

    def require(self) -> None:
        """Check, unless the last check was less than a second ago; raises RunStopped if Ray is dead."""
        if time.monotonic() > self.looked + BETWEEN:
            self.look(deep=time.monotonic() > self.asked + BETWEEN_NODES)

    def look(self, deep: bool = True) -> None:
        """Raise RunStopped if Ray is dead; with `deep`, also if the cluster counts this machine's node as dead."""
        before, self.looked = self.looked, time.monotonic()
        dead = [name for name, process in self.own if not runs(process)]
        if dead:
            raise died(dead)
        if self.own:
            return
        if is_listening(self.address):
            self.away = None
        elif self.away is None or self.looked > before + AWAY:  # looks far apart don't tell what was between them
            self.away = self.looked
        elif self.looked > self.away + AWAY:
            raise RunStopped(f"the connection to the Ray cluster at {self.address} was lost: its head does not answer")
        if deep and self.away is None:
            self.asked = self.looked
            if not self._node_lives():
                raise RunStopped(f"the connection to the Ray cluster at {self.address} was lost: this node has died")

    def _node_lives(self) -> bool:
        with suppress(ray.exceptions.RayError):  # the head is busy, or has just died
            return any(node["NodeID"] == self.node and node["Alive"] for node in ray.nodes())
        return True


@contextmanager
def ray_watched() -> Iterator[RayHealth]:
    """In this context, a command says why and ends if Ray is dead and a call to Ray does not return."""
    health, over = RayHealth(), threading.Event()
    thread = threading.Thread(target=_watch, args=(RayHealth(), over), daemon=True)
    thread.start()
    try:
        yield health
    finally:
        over.set()
        thread.join()


def _watch(health: RayHealth, over: threading.Event) -> None:
    while not over.wait(BETWEEN):
        try:
            health.look(deep=False)
        except RunStopped as error:
            if not over.wait(TO_END) and hints:  # a program or a notebook decides itself when to end
                for _, process in health.own:
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                leave(1, f"error: {error}")
            return


def own_processes() -> list[tuple[str, psutil.Process]]:
    """The processes, with their names, of the Ray that this process started; none if it only uses one."""
    found = []
    for name, number in ray_processes():
        try:
            found.append((name, psutil.Process(number)))
        except psutil.NoSuchProcess:
            raise died([name]) from None
    return found


def died(names: list[str]) -> RunStopped:
    return RunStopped(f"Ray on this machine has died ({' and '.join(names)})")


def runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def is_listening(address: str) -> bool:
    """Whether somebody listens at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=BETWEEN).close()
    except OSError:
        return False
    return True


def results_of(calls: list[ObjectRef], look: Callable[[int], None]) -> list[Any]:
    """What calls return. Until then, `look` is called every second with the number of those that have not returned."""
    while missing := ray.wait(calls, num_returns=len(calls), timeout=BETWEEN)[1]:
        look(len(missing))
    return ray.get(calls)
