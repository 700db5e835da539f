"""Messages between the driver and client actors on one node."""

import socket
from threading import Thread

import numpy as np
import pytest

from fedmbo_ray.backends.ray.messages import Connection
from fedmbo_ray.backends.ray.protocol import Request
from fedmbo_ray.backends.ray.transport import Gone, SocketLink


def pair() -> tuple[Connection, Connection]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Connection(one), Connection(other)


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 20_000])
def test_a_message_may_have_any_number_of_arrays(count: int) -> None:
    here, there = pair()
    arrays = [np.arange(i % 7, dtype=np.float32) for i in range(count)] + [np.ones(50_000)]
    thread = Thread(target=here.send, args=("head", arrays))
    thread.start()
    head, received = there.receive()
    thread.join()
    assert head == "head"
    assert len(received) == count + 1
    assert all(np.array_equal(a, b) for a, b in zip(arrays, received, strict=True))
    here.close()
    there.close()


def test_versions_travel_beside_a_request_and_come_back() -> None:
    """So that a request looks like the one before, whose header is remembered."""
    request, other = (Request(b"", kinds, (0,), 1, 0) for kinds in ((None, 7, -9, None), (None, 8, -11, None)))
    plain, versions = request.without_versions()
    assert plain == other.without_versions()[0]
    assert plain.with_versions(versions) == request


class Sending:
    """A link without an actor, whose connection fails in some way."""

    def __init__(self, error: Exception) -> None:
        self.connection, self.sent, self.error = self, self, error

    def kinds(self, versions: list) -> tuple:
        return ()

    def request(self, kinds: tuple) -> "Sending":
        return self

    def without_versions(self) -> tuple["Sending", np.ndarray]:
        return self, np.zeros(0)

    def arrays(self) -> list:
        return []

    def send(self, head: object, arrays: list) -> None:
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(), ConnectionResetError()])
def test_a_broken_connection_is_a_death(error: OSError) -> None:
    failing = Sending(error)
    with pytest.raises(Gone):
        SocketLink.send(failing, failing, [])


@pytest.mark.parametrize("error", [OSError(90, "Message too long"), OSError(24, "Too many open files"), MemoryError()])
def test_an_error_of_ones_own_is_not_taken_for_a_death(error: Exception) -> None:
    failing = Sending(error)
    with pytest.raises(type(error)) as caught:
        SocketLink.send(failing, failing, [])
    assert caught.value is error
