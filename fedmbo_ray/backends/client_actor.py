"""The Ray actor that plays clients: it computes blocks of slots for whichever clients they name."""

import socket
import traceback
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmbo_ray.backends.messages import Channel
from fedmbo_ray.federation import Block, Job, run_block

VERSIONS_KEPT = 4


class Known(NamedTuple):
    """Stands for a shared vector that the actor has got before."""

    version: int


class Fresh(NamedTuple):
    """A shared vector that is worth keeping: it comes back as Known."""

    version: int
    array: NDArray[Any]


class Request(NamedTuple):
    """A job and some of its blocks, tensors as arrays."""

    job: Job
    blocks: list[Block]


class Failure(NamedTuple):
    """What a kernel raised, as text."""

    text: str


Reply = list[tuple[NDArray[Any], ...]] | Failure


class Versions:
    """The last few large vectors sent to one actor. Both sides keep one, and so know what the other has."""

    def __init__(self) -> None:
        self.kept: OrderedDict[int, Any] = OrderedDict()

    def __contains__(self, version: int) -> bool:
        return version in self.kept

    def add(self, version: int, value: Any) -> None:
        self.kept[version] = value
        while len(self.kept) > VERSIONS_KEPT:
            self.kept.popitem(last=False)


class Computer:
    """What a client actor does, without Ray: computes requests on one device."""

    def __init__(self, problem: Any, data: Any, device: torch.device) -> None:
        self.problem, self.data, self.device = problem, data, device
        self.versions = Versions()

    def compute(self, request: Request) -> Reply:
        try:
            job = request.job._replace(shared=tuple(self._tensor(part) for part in request.job.shared))
            return [self._block(job, block) for block in request.blocks]
        except Exception:  # whatever a user's kernel raises is the driver's to report
            return Failure(traceback.format_exc())

    def _block(self, job: Job, block: Block) -> tuple[NDArray[Any], ...]:
        block = block._replace(each=tuple(torch.from_numpy(rows) for rows in block.each))
        outputs = run_block(self.problem, self.data, job, block, self.device)
        return tuple(np.ascontiguousarray(out.detach().cpu().numpy()) for out in outputs)

    def _tensor(self, part: Any) -> Tensor:
        if isinstance(part, Known):
            return self.versions.kept[part.version]
        if isinstance(part, Fresh):
            tensor = torch.tensor(part.array, device=self.device)
            self.versions.add(part.version, tensor)
            return tensor
        return torch.tensor(part, device=self.device)


class ClientActor:
    """Holds the problem and (by reference into the node's object store) the data, and no other state."""

    def __init__(self, problem: Any, data: Any) -> None:
        torch.set_num_threads(1)
        device = torch.device("cuda" if ray.get_gpu_ids() else "cpu")
        self.computer = Computer(problem, data, device)

    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()

    def serve(self, path: str) -> None:
        """Answer requests over the socket at `path` until the driver hangs up."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
        channel = Channel(connection)
        while True:
            try:
                request = channel.receive()
            except EOFError:
                return
            channel.send(self.computer.compute(request))

    def compute(self, request: Request, *arrays: Any) -> Reply:
        """Answer one request as an ordinary call; `arrays` fill the places of its Fresh vectors, in order."""
        rest = iter(arrays)
        shared = tuple(
            part._replace(array=next(rest)) if isinstance(part, Fresh) else part for part in request.job.shared
        )
        return self.computer.compute(request._replace(job=request.job._replace(shared=shared)))
