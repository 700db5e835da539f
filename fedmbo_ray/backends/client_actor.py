"""The Ray actor that plays clients: it computes blocks of slots for whichever clients they name."""

import gc
import os
import socket
import traceback
from collections import OrderedDict
from functools import lru_cache
from typing import Any, NamedTuple

import ray
import torch
from ray import cloudpickle
from torch import Tensor

from fedmbo_ray.backends.messages import Arrays, Channel
from fedmbo_ray.blocks import Block, Job, run_block
from fedmbo_ray.profiling import Stacks, sampled

VERSIONS_KEPT = 4


class Request(NamedTuple):
    """Some blocks of a job. Its arrays travel beside it: new shared ones first, then ids, seeds and rows of each block.

    `kinds` says of each shared argument what it is: None, sent along; a version known to the actor, not sent;
    a negated version, sent along and to be kept under that number.
    """

    spec: bytes  # kernel, draw, summed, own
    kinds: tuple[int | None, ...]
    rows: tuple[int, ...]  # how many arrays of rows each block has


class Reply(NamedTuple):
    """How many outputs each block has (they travel beside it), or what a kernel raised, as text."""

    outputs: tuple[int, ...]
    failure: str | None = None


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


@lru_cache(maxsize=64)
def unpickled(spec: bytes) -> Any:
    """What is behind a spec; most come again and again."""
    return cloudpickle.loads(spec)


class Computer:
    """What a client actor does, without Ray: answers requests on one device."""

    def __init__(self, problem: Any, data: Any, device: torch.device) -> None:
        self.problem, self.data, self.device = problem, data, device
        self.versions = Versions()

    def compute(self, request: Request, arrays: Arrays) -> tuple[Reply, Arrays]:
        try:
            results = self._results(request, iter(arrays))
        except Exception:  # whatever a user's kernel raises is the driver's to report
            return Reply((), traceback.format_exc()), []
        outputs = [out.detach().cpu().numpy() for result in results for out in result]
        return Reply(tuple(len(result) for result in results)), outputs

    def _results(self, request: Request, arrays: Any) -> list[tuple[Tensor, ...]]:
        shared = tuple(self._shared(kind, arrays) for kind in request.kinds)
        kernel, *rest = unpickled(request.spec)
        job = Job(kernel, shared, *rest)
        results = []
        for rows in request.rows:
            block = Block(next(arrays), next(arrays), tuple(torch.from_numpy(next(arrays)) for _ in range(rows)))
            results.append(run_block(self.problem, self.data, job, block, self.device))
        return results

    def _shared(self, kind: int | None, arrays: Any) -> Tensor:
        if kind is not None and kind > 0:
            return self.versions.kept[kind]
        tensor = torch.from_numpy(next(arrays)).to(self.device)
        if kind is not None:
            self.versions.add(-kind, tensor)
        return tensor


class ClientActor:
    """Holds the problem and (by reference into the node's object store) the data, and no other state."""

    def __init__(self, problem: Any, data: Any, profile: bool = False) -> None:
        torch.set_num_threads(1)
        # Woken by the driver, an actor must not take its core before the other actors have got their blocks.
        if hasattr(os, "SCHED_BATCH"):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        gc.freeze()  # nothing made so far is garbage: don't look through it again and again
        device = torch.device("cuda" if ray.get_gpu_ids() else "cpu")
        self.computer = Computer(problem, data, device)
        self.profiling = sampled(profile)
        self.stacks = self.profiling.__enter__()

    def profile(self) -> Stacks:
        """What this process has been seen doing."""
        self.profiling.__exit__(None, None, None)
        return self.stacks

    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()

    def serve(self, path: str) -> None:
        """Answer requests over the socket at `path` until the driver hangs up."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
        channel = Channel(connection)
        while True:
            try:
                head, arrays = channel.receive()
            except EOFError:
                return
            channel.send(*self.computer.compute(head, arrays))

    def compute(self, request: Request, inline: Arrays, *stored: Any) -> tuple[Reply, Arrays]:
        """Answer one request as an ordinary call; `stored` arrays, from the object store, come before the others."""
        return self.computer.compute(request, [array.copy() for array in (*stored, *inline)])  # they are read-only
