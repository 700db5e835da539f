"""Messages between the driver and its client actors on one node: pickles over a Unix socket.

An ordinary actor call costs about a millisecond, and several with a few hundred kilobytes; a message here
a tenth of that. Arrays travel beside the pickle, uncopied. The socket lies in a folder that only the
user can enter, and the end of the stream tells at once that the other side's process is gone.
"""

import pickle
import socket
import struct
from typing import Any

from ray import cloudpickle

_COUNT = struct.Struct("<Q")


class Channel:
    """One end of a connection; `fileno` makes it something to wait for."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def fileno(self) -> int:
        return self.connection.fileno()

    def send(self, message: Any) -> None:
        """Raises OSError when the other side is gone."""
        buffers: list[pickle.PickleBuffer] = []
        head = cloudpickle.dumps(message, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
        sizes = [_COUNT.pack(len(parts)), *(_COUNT.pack(len(part)) for part in parts)]
        self.connection.sendall(b"".join(sizes))
        for part in parts:
            self.connection.sendall(part)

    def receive(self) -> Any:
        """Raises EOFError when the other side is gone."""
        (count,) = _COUNT.unpack(self._read(_COUNT.size))
        sizes = [_COUNT.unpack(self._read(_COUNT.size))[0] for _ in range(count)]
        head, *buffers = [self._read(size) for size in sizes]
        return pickle.loads(head, buffers=buffers)

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            try:
                got = self.connection.recv_into(rest)
            except ConnectionError:
                got = 0
            if got == 0:
                raise EOFError("the other side of the channel is gone")
            rest = rest[got:]
        return data

    def close(self) -> None:
        self.connection.close()
