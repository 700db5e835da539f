"""How the driver reaches one client actor: a socket where they share a node, ordinary calls elsewhere."""

import contextlib
import select
import socket
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.actor import ActorHandle

from fedmbo_ray.backends.messages import Arrays, Channel
from fedmbo_ray.backends.requests import GONE, VERSIONS_KEPT, Reply, Request, Versions
from fedmbo_ray.blocks import Block


class Gone(Exception):
    """The actor's process has died; what it was asked must be asked again elsewhere."""


class Shared(NamedTuple):
    """A shared argument on its way to the actors; a large one has a version, which stays the same while it does."""

    array: Any
    version: int | None


class Share(NamedTuple):
    """Some blocks of a job, with their numbers."""

    spec: bytes
    numbers: tuple[int, ...]
    blocks: list[Block]
    total: int

    def request(self, kinds: tuple[int | None, ...]) -> Request:
        return Request(self.spec, kinds, self.numbers, self.total, len(self.blocks[0].each))

    def arrays(self) -> Arrays:
        return [array for block in self.blocks for array in (block.clients, block.seeds, *block.each)]


class SocketLink:
    """Messages over a Unix socket; a vector with a version is sent to the actor once."""

    def __init__(self, actor: ActorHandle) -> None:
        self.actor = actor
        self.folder = tempfile.TemporaryDirectory(prefix="fedmbo-")
        path = str(Path(self.folder.name) / "socket")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(1)
        listener.setblocking(False)
        self.serving = actor.serve.remote(path)
        self.waiting_on: Any = listener
        self.channel: Channel | None = None
        self.versions = Versions()

    def connect(self) -> None:
        """To be called when the actor knocks, or has died."""
        with gone_if(OSError):
            connection, _ = self.waiting_on.accept()
        connection.setblocking(True)
        self.waiting_on.close()
        self.waiting_on = self.channel = Channel(connection)

    def send(self, share: Share, shared: list[Shared]) -> None:
        assert self.channel is not None
        kinds = tuple(self.versions.kind(version) for _, version in shared)
        fresh = [part.array for part, kind in zip(shared, kinds, strict=True) if kind is None or kind < 0]
        try:
            self.channel.send(share.request(kinds), fresh + share.arrays())
        except OSError as error:
            raise Gone(str(error)) from None

    def receive(self) -> tuple[Reply, Arrays]:
        assert self.channel is not None
        try:
            return self.channel.receive()
        except (EOFError, OSError) as error:
            raise Gone(str(error)) from None

    def close(self) -> None:
        self.waiting_on.close()
        self.folder.cleanup()

    @staticmethod
    def wait(links: "list[SocketLink]") -> "list[SocketLink]":
        """The links that have something to say: connected, a reply, or dead."""
        by_file = {link.waiting_on.fileno(): link for link in links}
        poll = select.poll()
        for file in by_file:
            poll.register(file, select.POLLIN)
        ready = [by_file[file] for file, _ in poll.poll(5000)]
        starting = [link for link in links if link.channel is None and link not in ready]
        dead, _ = ray.wait([link.serving for link in starting], timeout=0) if starting else ([], [])
        return ready + [link for link in starting if link.serving in dead]


class CallLink:
    """Ordinary actor calls; a vector with a version is put into the object store once, and sent to an actor once."""

    def __init__(self, actor: ActorHandle, store: dict[int, Any], leads: bool = False) -> None:
        self.actor, self.store, self.leads = actor, store, leads
        self.pending = actor.node.remote()
        self.channel: Any = None
        self.versions = Versions()

    def connect(self) -> None:
        with gone_if(*GONE):
            ray.get(self.pending)
        self.channel = self.actor

    def send(self, share: Share, shared: list[Shared]) -> None:
        request = share.request(tuple(self.versions.kind(version) for _, version in shared))
        small = [array for array, version in shared if version is None]
        fresh = [part.array for part, kind in zip(shared, request.kinds, strict=True) if kind is not None and kind < 0]
        refs = [self._stored(*each) for each in zip(fresh, request.new_versions(), strict=True)]
        passed_on = refs if self.leads else []  # a reference inside an argument costs milliseconds
        self.pending = self.actor.compute.remote(request, small + share.arrays(), passed_on, *refs)

    def _stored(self, array: Any, version: int) -> Any:
        if version not in self.store:
            self.store[version] = ray.put(array)
            for old in sorted(self.store)[:-VERSIONS_KEPT]:
                del self.store[old]
        return self.store[version]

    def receive(self) -> tuple[Reply, Arrays]:
        with gone_if(*GONE):
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
