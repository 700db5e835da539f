"""How the driver reaches one client actor: a socket where they share a node, ordinary calls elsewhere."""

import contextlib
import select
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

import ray
from ray import ObjectRef
from ray.actor import ActorHandle

from fedmbo_ray.backends.ray.health import BETWEEN
from fedmbo_ray.backends.ray.messages import Arrays, Connection, short_enough
from fedmbo_ray.backends.ray.protocol import GONE, KeptVectors, Reply, Request, SentVectors
from fedmbo_ray.core.scratch import scratch_folder
from fedmbo_ray.federation.execution import Block
from fedmbo_ray.federation.reduction import Array


class Gone(Exception):
    """The actor's process has died; what it was asked must be asked again elsewhere."""


class SharedArray(NamedTuple):
    """A shared argument on its way to the actors; a large one has a version, which stays the same while it does."""

    array: Array
    version: int | None


class Assignment(NamedTuple):
    """Some blocks of a job, with their numbers, for one actor."""

    spec: bytes
    numbers: tuple[int, ...]
    blocks: list[Block]
    total: int

    def request(self, kinds: tuple[int | None, ...]) -> Request:
        return Request(self.spec, kinds, self.numbers, self.total, len(self.blocks[0].each))

    def arrays(self) -> Arrays:
        return [
            array
            for block in self.blocks
            for array in (block.clients, block.seeds, *(rows.numpy() for rows in block.each))
        ]


class Link(Protocol):
    """How one actor is reached."""

    @property
    def connected(self) -> bool: ...

    def connect(self) -> None: ...

    def send(self, assignment: Assignment, shared: list[SharedArray]) -> None: ...

    def receive(self) -> tuple[Reply, Arrays]: ...

    def close(self) -> None: ...

    @property
    def wait(self) -> "Callable[..., Iterable[Link]]":
        """Those links, all of the same kind, from which something arrives within a second."""
        ...


class SocketLink:
    """Messages over a Unix socket; a vector with a version is sent to the actor once."""

    def __init__(self, actor: ActorHandle) -> None:
        self.actor = actor
        self.folder = scratch_folder()
        path = str(self.folder / "socket")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_enough(path) as address:
            listener.bind(address)
        listener.listen(1)
        listener.setblocking(False)
        self.serving = actor.serve.remote(path)
        self.listener = listener
        self.connection: Connection[Reply] | None = None
        self.sent = SentVectors()

    @property
    def connected(self) -> bool:
        return self.connection is not None

    def connect(self) -> None:
        """To be called when the actor connects, or has died."""
        with gone_if(BlockingIOError, ConnectionError):
            end, _ = self.listener.accept()
        end.setblocking(True)
        self.listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)  # a connection outlives the name of its socket
        self.connection = Connection(end)

    def send(self, assignment: Assignment, shared: list[SharedArray]) -> None:
        assert self.connection is not None
        kinds = self.sent.kinds([version for _, version in shared])
        fresh = [part.array for part, kind in zip(shared, kinds, strict=True) if kind is None or kind < 0]
        request, versions = assignment.request(kinds).without_versions()  # often equal: see `messages`
        with gone_if(ConnectionError):  # other errors come from this side, and would happen again
            self.connection.send(request, [versions, *fresh, *assignment.arrays()])

    def receive(self) -> tuple[Reply, Arrays]:
        assert self.connection is not None
        with gone_if(EOFError, ConnectionError):
            return self.connection.receive()

    def close(self) -> None:
        (self.connection or self.listener).close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def fileno(self) -> int:
        return (self.connection or self.listener).fileno()

    @staticmethod
    def wait(links: "list[SocketLink]") -> "list[SocketLink]":
        """The links at which something has happened: connected, a reply, or dead."""
        by_file = {link.fileno(): link for link in links}
        poll = select.poll()
        for file in by_file:
            poll.register(file, select.POLLIN)
        ready = [by_file[file] for file, _ in poll.poll(1000 * BETWEEN)]
        starting = [link for link in links if not link.connected and link not in ready]
        dead, _ = ray.wait([link.serving for link in starting], timeout=0) if starting else ([], [])
        return ready + [link for link in starting if link.serving in dead]


class CallLink:
    """Ordinary actor calls; a vector with a version is put into the object store once, and sent to an actor once."""

    def __init__(self, actor: ActorHandle, store: KeptVectors[ObjectRef], leads: bool = False) -> None:
        self.actor, self.store, self.leads = actor, store, leads
        self.pending = actor.node.remote()
        self.connected = False
        self.sent = SentVectors()

    def connect(self) -> None:
        with gone_if(*GONE):
            ray.get(self.pending)
        self.connected = True

    def send(self, assignment: Assignment, shared: list[SharedArray]) -> None:
        request = assignment.request(self.sent.kinds([version for _, version in shared]))
        self.store.make_room(request.kinds)
        small = [array for array, version in shared if version is None]
        fresh = [part.array for part, kind in zip(shared, request.kinds, strict=True) if kind is not None and kind < 0]
        refs = [self._stored(*each) for each in zip(fresh, request.new_versions(), strict=True)]
        passed_on = refs if self.leads else []  # a reference inside an argument costs milliseconds
        self.pending = self.actor.compute.remote(request, small + assignment.arrays(), passed_on, *refs)

    def _stored(self, array: Array, version: int) -> ObjectRef:
        if version not in self.store.kept:
            self.store.add(version, ray.put(array))
        return self.store.use(version)

    def receive(self) -> tuple[Reply, Arrays]:
        with gone_if(*GONE):
            return ray.get(self.pending)

    def close(self) -> None: ...

    @staticmethod
    def wait(links: "list[CallLink]") -> "list[CallLink]":
        by_reference = {link.pending: link for link in links}
        ready, _ = ray.wait(list(by_reference), num_returns=1, timeout=BETWEEN)
        return [by_reference[reference] for reference in ready]


@contextlib.contextmanager
def gone_if(*kinds: type[BaseException]) -> Iterator[None]:
    try:
        yield
    except kinds as error:
        raise Gone(str(error)) from None
