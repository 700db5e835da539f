"""How the driver reaches one client actor: a socket where they share a node, ordinary calls elsewhere."""

import contextlib
import socket
import tempfile
from multiprocessing.connection import wait as wait_for_any
from pathlib import Path
from typing import Any, Protocol

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from fedmbo_ray.backends.client_actor import VERSIONS_KEPT, Fresh, Known, Reply, Request, Versions
from fedmbo_ray.backends.messages import Channel


class Gone(Exception):
    """The actor's process has died; what it was asked must be asked again elsewhere."""


class Link(Protocol):
    """Takes one request at a time: `send` it, wait until the link is ready, `receive` the reply."""

    actor: ActorHandle

    def send(self, request: Request, versions: tuple[int | None, ...]) -> None: ...
    def receive(self) -> Reply: ...
    def close(self) -> None: ...


class SocketLink:
    """Messages over a Unix socket; a vector with a version is sent to the actor once."""

    kind = "socket"

    def __init__(self, actor: ActorHandle) -> None:
        self.actor = actor
        self.folder = tempfile.TemporaryDirectory(prefix="fedmbo-")
        path = str(Path(self.folder.name) / "socket")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(1)
        self.serving = actor.serve.remote(path)
        self.waiting_on: Any = listener
        self.channel: Channel | None = None
        self.versions = Versions()

    def connect(self) -> None:
        """To be called once the actor knocks."""
        connection, _ = self.waiting_on.accept()
        self.waiting_on.close()
        self.waiting_on = self.channel = Channel(connection)

    def send(self, request: Request, versions: tuple[int | None, ...]) -> None:
        assert self.channel is not None
        shared = tuple(map(self._known_or_fresh, request.job.shared, versions))
        with gone_if(OSError):
            self.channel.send(request._replace(job=request.job._replace(shared=shared)))

    def _known_or_fresh(self, array: Any, version: int | None) -> Any:
        if version is None:
            return array
        if version in self.versions:
            return Known(version)
        self.versions.add(version, None)
        return Fresh(version, array)

    def receive(self) -> Reply:
        assert self.channel is not None
        with gone_if(EOFError, OSError):
            return self.channel.receive()

    def close(self) -> None:
        self.waiting_on.close()
        self.folder.cleanup()

    @staticmethod
    def wait(links: "list[SocketLink]") -> "list[SocketLink]":
        """The links that have something to say: connected, a reply, or dead."""
        by_object = {link.waiting_on: link for link in links}
        ready = [by_object[each] for each in wait_for_any(list(by_object), timeout=5)]
        starting = [link for link in links if link.channel is None and link not in ready]
        dead, _ = ray.wait([link.serving for link in starting], timeout=0) if starting else ([], [])
        return ready + [link for link in starting if link.serving in dead]


class CallLink:
    """Ordinary actor calls; a vector with a version is put into the object store once for all actors."""

    kind = "call"

    def __init__(self, actor: ActorHandle, store: dict[int, Any]) -> None:
        self.actor, self.store = actor, store
        self.pending = actor.node.remote()
        self.channel: Any = None

    def connect(self) -> None:
        with gone_if(RayActorError):
            ray.get(self.pending)
        self.channel = self.actor

    def send(self, request: Request, versions: tuple[int | None, ...]) -> None:
        shared, references = [], []
        for array, version in zip(request.job.shared, versions, strict=True):
            if version is None:
                shared.append(array)
            else:
                references.append(self._stored(array, version))
                shared.append(Fresh(version, None))  # type: ignore[arg-type]
        request = request._replace(job=request.job._replace(shared=tuple(shared)))
        with gone_if(RayActorError):
            self.pending = self.actor.compute.remote(request, *references)

    def _stored(self, array: Any, version: int) -> Any:
        if version not in self.store:
            self.store[version] = ray.put(array)
            for old in sorted(self.store)[:-VERSIONS_KEPT]:
                del self.store[old]
        return self.store[version]

    def receive(self) -> Reply:
        with gone_if(RayActorError):
            return ray.get(self.pending)

    def close(self) -> None: ...

    @staticmethod
    def wait(links: "list[CallLink]") -> "list[CallLink]":
        by_reference = {link.pending: link for link in links}
        ready, _ = ray.wait(list(by_reference), num_returns=1)
        return [by_reference[reference] for reference in ready]


@contextlib.contextmanager
def gone_if(*kinds: type[BaseException]) -> Any:
    try:
        yield
    except kinds as error:
        raise Gone(str(error)) from None
