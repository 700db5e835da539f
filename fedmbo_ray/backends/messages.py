"""Messages between the driver and its client actors on one node: arrays with a small header, over a Unix socket.

An ordinary actor call costs about a millisecond, and several with a few hundred kilobytes; a message here
a tenth of that. Arrays are sent as they lie in memory. The socket is in a folder that only the user can
enter, and the end of the stream tells at once that the other side's process is gone.
"""

import pickle
import socket
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIZES = struct.Struct("<QQ")  # bytes of the header, bytes of everything after it
Arrays = list[NDArray[Any]]


class Channel:
    """One end of a connection; `fileno` makes it something to wait for."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def fileno(self) -> int:
        return self.connection.fileno()

    def send(self, head: Any, arrays: Arrays) -> None:
        """`head` is small and picklable. Raises OSError when the other side is gone."""
        layout = [(array.dtype.str, array.shape) for array in arrays]
        header = pickle.dumps((head, layout), protocol=5)
        parts = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays if array.size]
        sizes = _SIZES.pack(len(header), sum(len(part) for part in parts))
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
        body = self._read(header_size + size)
        head, layout = pickle.loads(body[:header_size])
        arrays, start = [], header_size
        for dtype, shape in layout:
            count = int(np.prod(shape, dtype=np.int64))
            arrays.append(np.frombuffer(body, dtype, count, start).reshape(shape))
            start += arrays[-1].nbytes
        return head, arrays

    def _read(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        got = 0
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
