"""Messages between the driver and its client actors on one node: arrays with a small header, over a Unix socket.

An ordinary actor call costs about a millisecond, and several with a few hundred kilobytes; a message here
a tenth of that. Arrays are sent as they lie in memory. Most messages look like an earlier one, so that headers are
remembered on both sides. The socket is in a folder that only the user can enter, and the end of the stream tells at
once that the other side's process is gone.
"""

import pickle
import socket
import struct
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIZES = struct.Struct("<QQ")  # bytes of the header, bytes of everything after it
Arrays = list[NDArray[Any]]


@lru_cache(maxsize=256)
def _packed(head: Any, layout: tuple[Any, ...]) -> bytes:
    """The header of a message; `head` and `layout` (dtype and shape of each array) must be hashable."""
    return pickle.dumps((head, layout), protocol=5)


@lru_cache(maxsize=256)
def _unpacked(header: bytes) -> tuple[Any, list[tuple[Any, Any, int]]]:
    """What is behind a header: the head; and dtype, shape and number of elements of each array."""
    head, layout = pickle.loads(header)
    return head, [(dtype, shape, int(np.prod(shape, dtype=np.int64))) for dtype, shape in layout]


class Channel:
    """One end of a connection; `fileno` makes it something to wait for."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def fileno(self) -> int:
        return self.connection.fileno()

    def send(self, head: Any, arrays: Arrays) -> None:
        """`head` is small, hashable and picklable. Raises OSError when the other side is gone."""
        header = _packed(head, tuple([(array.dtype, array.shape) for array in arrays]))
        parts = [_bytes(array) for array in arrays if array.size]
        sizes = _SIZES.pack(len(header), sum([part.nbytes for part in parts]))
        self._write([memoryview(sizes + header), *parts])

    def _write(self, parts: list[memoryview]) -> None:
        """All parts in as few calls as the socket allows, so that the other side wakes up once."""
        while parts:
            sent = self.connection.sendmsg(parts)
            while parts and sent >= len(parts[0]):
                sent -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][sent:]

    def receive(self) -> tuple[Any, Arrays]:
        """Raises EOFError when the other side is gone."""
        header_size, size = _SIZES.unpack(self._read(_SIZES.size))
        head, layout = _unpacked(bytes(self._read(header_size)))
        body, arrays, start = self._read(size), [], 0
        for dtype, shape, count in layout:
            arrays.append(np.frombuffer(body, dtype, count, start).reshape(shape))
            start += arrays[-1].nbytes
        return head, arrays

    def _read(self, size: int) -> memoryview:
        data, got = np.empty(size, np.uint8).data, 0  # unlike bytes, not filled with zeros first
        while got < size:
            try:
                more = self.connection.recv_into(data[got:])
            except ConnectionError:
                more = 0
            if more == 0:
                raise EOFError("the other side of the channel is gone")
            got += more
        return data

    def close(self) -> None:
        self.connection.close()


def _bytes(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
