"""Messages between the driver and its client actors on one node: arrays with a small header, over a Unix socket.

An ordinary actor call takes about a millisecond, and several milliseconds with a few hundred kilobytes. A message takes
a tenth of that. Small arrays go through the socket, large ones through memory that both sides see: a socket holds
little, and the two sides would have to take turns. Most headers are equal to an earlier one, so headers are cached. The
socket is in a folder that only the user can enter, and the memory has no name. If the process at the other side ends,
the end of the stream shows it at once.

The two sides speak in turn: a message is read before the next one is sent.
"""

import array
import mmap
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np

from fedmbo_ray.federation.reduction import Array

LARGE = 32_768  # bytes from which an array goes through memory
MOST_PARTS = 1024  # buffers that one call may send (IOV_MAX)
LONGEST_PATH = 103  # bytes in the address of a Unix socket; Linux takes four more
AT_ONCE = 65_536  # bytes to read before the length of a message is known; most messages are shorter
_ALIGNED = 64
_SIZES = struct.Struct("<QQ")  # bytes of the header, bytes of everything after it
_DESCRIPTOR = struct.Struct("i")
Arrays = list[Array]
Layout = tuple[tuple[np.dtype[np.generic], tuple[int, ...]], ...]  # dtype and shape of each array
MessageHead = TypeVar("MessageHead")  # what the other side says


@contextmanager
def short_enough(path: str) -> Iterator[str]:
    """In this context, a shorter name for a socket's path if the path is too long for one (a long $TMPDIR)."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


@lru_cache(maxsize=256)
def _packed(head: Hashable, layout: Layout) -> bytes:
    """The header of a message, padded so that the arrays begin at an aligned place."""
    header = pickle.dumps((head, layout), protocol=5)
    return header + bytes(_room(_SIZES.size + len(header)) - _SIZES.size - len(header))


@lru_cache(maxsize=256)
def _unpacked(header: bytes) -> tuple[Any, list[tuple[np.dtype[np.generic], tuple[int, ...], int]]]:
    """What is behind a header: the head; and dtype, shape and number of elements of each array."""
    head, layout = pickle.loads(header)
    return head, [(dtype, shape, int(np.prod(shape, dtype=np.int64))) for dtype, shape in layout]


class SharedMemory:
    """Memory shared with the other side, which it reaches by a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.bytes = mmap.mmap(descriptor, os.fstat(descriptor).st_size)

    @staticmethod
    def of(size: int) -> "SharedMemory":
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("fedmbo_ray", os.MFD_CLOEXEC)
        else:  # not on Linux: a file without a name
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, size)
        return SharedMemory(descriptor)

    def close(self) -> None:
        self.bytes.close()
        os.close(self.descriptor)


class Connection(Generic[MessageHead]):
    """One end of a connection; `fileno` makes it something to wait for."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.out: SharedMemory | None = None  # written by this side
        self.into: SharedMemory | None = None  # written by the other

    def fileno(self) -> int:
        return self.end.fileno()

    def send(self, head: Hashable, arrays: Arrays) -> None:
        """`head` is small and picklable. Raises OSError when the other side is gone."""
        header = _packed(head, tuple([(each.dtype, each.shape) for each in arrays]))
        inline = [_bytes(each) for each in arrays if 0 < each.nbytes < LARGE]
        sizes = _SIZES.pack(len(header), sum([part.nbytes for part in inline]))
        descriptors = self._store([each for each in arrays if each.nbytes >= LARGE])
        self._write([memoryview(sizes + header), *inline], descriptors)

    def _store(self, arrays: Arrays) -> list[int]:
        """Write large arrays into memory; if that is new, its descriptor must reach the other side."""
        needed, fresh = sum([_room(each.nbytes) for each in arrays]), []
        if needed and (self.out is None or len(self.out.bytes) < needed):
            if self.out is not None:
                self.out.close()
            self.out = SharedMemory.of(needed)
            fresh = [self.out.descriptor]
        start = 0
        for each in arrays:
            assert self.out is not None
            np.frombuffer(self.out.bytes, each.dtype, each.size, start).reshape(each.shape)[...] = each
            start += _room(each.nbytes)
        return fresh

    def _write(self, parts: list[memoryview], descriptors: list[int]) -> None:
        """All parts in as few calls as the socket allows, so that the other side wakes up once."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        first = 0  # of the parts that are not sent yet
        while first < len(parts):
            sent = self.end.sendmsg(parts[first : first + MOST_PARTS], rights)
            rights = []
            while first < len(parts) and sent >= len(parts[first]):
                sent -= len(parts[first])
                first += 1
            if sent:
                parts[first] = parts[first][sent:]

    def receive(self) -> tuple[MessageHead, Arrays]:
        """Raises EOFError when the other side is gone. The arrays are the receiver's own."""
        data, got = self._first()
        header_size, size = _SIZES.unpack_from(data)
        start = _SIZES.size + header_size
        if len(data) < start + size:
            more = np.empty(start + size, np.uint8).data  # unlike bytes, not filled with zeros first
            more[:got] = data[:got]
            data = more
        self._read(data[got : start + size])
        head, layout = _unpacked(bytes(data[_SIZES.size : start]))
        arrays, starts = [], [start, 0]
        for dtype, shape, count in layout:
            nbytes = dtype.itemsize * count
            large = nbytes >= LARGE
            source = self.into.bytes if large and self.into is not None else data
            each = np.frombuffer(source, dtype, count, starts[large]).reshape(shape)
            arrays.append(each.copy() if large else each)
            starts[large] += _room(nbytes) if large else nbytes
        return head, arrays

    def _first(self) -> tuple[memoryview, int]:
        """The beginning of a message and its number of bytes. New shared memory, if there is any, arrives with it."""
        data, got = np.empty(AT_ONCE, np.uint8).data, 0
        while got < _SIZES.size:
            try:
                more, rights, _, _ = self.end.recvmsg_into([data[got:]], socket.CMSG_SPACE(_DESCRIPTOR.size))
            except ConnectionError:
                more, rights = 0, []
            if more == 0:
                raise EOFError("the other side of the connection is gone")
            got += more
            for _, _, descriptor in rights:
                if self.into is not None:
                    self.into.close()
                self.into = SharedMemory(*_DESCRIPTOR.unpack(descriptor))
        return data, got

    def _read(self, data: memoryview) -> None:
        """Read the rest of a message into `data`."""
        got = 0
        while got < len(data):
            try:
                more = self.end.recv_into(data[got:])
            except ConnectionError:
                more = 0
            if more == 0:
                raise EOFError("the other side of the connection is gone")
            got += more

    def close(self) -> None:
        self.end.close()
        for memory in (self.out, self.into):
            if memory is not None:
                memory.close()
        self.out = self.into = None


def _bytes(each: Array) -> memoryview:
    return np.ascontiguousarray(each).reshape(-1).view(np.uint8).data


def _room(nbytes: int) -> int:
    """What an array takes in memory, so that the next one is aligned."""
    return -(-nbytes // _ALIGNED) * _ALIGNED
