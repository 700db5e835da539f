"""The Ray actor that plays clients: it computes blocks of slots for whichever clients they name."""

import gc
import os
import socket
import traceback
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import ray
import torch
from ray import ObjectRef, cloudpickle
from ray.actor import ActorHandle
from torch import Tensor

from fedmbo_ray.backends.ray.accelerator import data_on, on_host, prepared_gpu, problem_on
from fedmbo_ray.backends.ray.messages import Arrays, Connection, short_enough
from fedmbo_ray.backends.ray.protocol import GONE, KeptVectors, Reply, Request, SentVectors, packed, shares, unpacked
from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.sampling import Stacks, sampled
from fedmbo_ray.data.batches import Batch, ClientData
from fedmbo_ray.federation.execution import Block, Job, run_block
from fedmbo_ray.federation.prepared import Prepared
from fedmbo_ray.federation.reduction import Array, Joined, Part
from fedmbo_ray.problems.base import Problem, Task


@lru_cache(maxsize=64)
def unpickled(spec: bytes) -> Any:
    """What is behind a spec; most come again and again."""
    return cloudpickle.loads(spec)


class Computer:
    """What a client actor does, without Ray: answers requests on one device."""

    def __init__(self, task: Task, device: torch.device, room: float = 0.0) -> None:
        """At most `room` bytes of data are kept on the device."""
        self.task = Task(problem_on(device, task.problem), data_on(device, task.data, room), task.test)
        self.device = device
        self.vectors, self.prepared = KeptVectors[Tensor](), Prepared()

    def compute(self, request: Request, arrays: Arrays) -> tuple[Reply, Arrays]:
        try:
            reply, results = packed(Joined(request.total, self._parts(request, iter(arrays))))
            return reply, on_host(results)
        except RunFailed as error:
            return Reply((), str(error)), []
        except Exception:  # whatever a user's kernel raises is the driver's to report
            return Reply((), f"a client's computation raised:\n{traceback.format_exc()}"), []

    def _parts(self, request: Request, arrays: Iterator[Any]) -> Iterator[Part[Tensor]]:
        self.vectors.make_room(request.kinds)
        shared = tuple(self._shared(kind, arrays) for kind in request.kinds)
        kernel, *rest = unpickled(request.spec)
        job = Job(kernel, shared, *rest)
        for number in request.numbers:
            block = Block(
                next(arrays), next(arrays), tuple(torch.from_numpy(next(arrays)) for _ in range(request.rows))
            )
            yield job.part(number, run_block(self.task, job, block, self.device, self.prepared))

    def _shared(self, kind: int | None, arrays: Iterator[Array]) -> Tensor:
        if kind is not None and kind > 0:
            return self.vectors.use(kind)
        tensor = torch.from_numpy(next(arrays)).to(self.device)
        if kind is not None:
            self.vectors.add(-kind, tensor)
        return tensor


def from_store(test: Arrays) -> Batch:
    """The test data, without a copy: the tensors are read only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return Batch(*map(torch.from_numpy, test))


class Member(NamedTuple):
    """An actor that another one gives work to."""

    number: int
    actor: ActorHandle
    weight: int  # how many actors it and those below it are


class ClientActor:
    """Holds the task, whose data are in the node's object store, and the actors that it leads; no other state."""

    def __init__(self, problem: Problem, data: ClientData, test: Arrays | None, profile: bool = False) -> None:
        torch.set_num_threads(1)
        # Woken by the driver, an actor must not take its core before the other actors have got their blocks.
        if hasattr(os, "SCHED_BATCH"):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        gc.freeze()  # nothing made so far is garbage: the collector need not look through it
        device = torch.device("cuda" if ray.get_gpu_ids() else "cpu")
        share = ray.get_runtime_context().get_assigned_resources().get("GPU", 1.0)
        usable = device.type == "cuda" and torch.cuda.is_available()  # otherwise the first answer says what is wrong
        task = Task(problem, data, None if test is None else from_store(test))
        self.computer = Computer(task, device, prepared_gpu(share) if usable else 0.0)
        self.members: list[Member] = []
        self.refs, self.told = KeptVectors[ObjectRef](), dict[int, SentVectors]()
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
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_enough(path) as address:
            end.connect(address)
        connection = Connection[Request](end)
        while True:
            try:
                request, (versions, *arrays) = connection.receive()
            except EOFError:
                return
            connection.send(*self.computer.compute(request.with_versions(versions), arrays))

    def lead(self, members: list[Member]) -> None:
        """From now on, share what comes with these actors."""
        self.members = members
        self.told = {member.number: SentVectors() for member in members}

    def compute(self, request: Request, inline: Arrays, refs: list[ObjectRef], *stored: Array) -> tuple[Reply, Arrays]:
        """Answer one request as an ordinary call, with the help of those whom this actor leads.

        Vectors with a new version come out of the object store; to one who leads, also as references to pass on.
        """
        if refs or self.refs.kept:
            self._keep(request.kinds, iter(refs))
        small, blocks = inline[: request.kinds.count(None)], inline[request.kinds.count(None) :]
        own, *others = shares(request, blocks, [1, *(member.weight for member in self.members)])
        asked = [
            (member, share, self._ask(member, small, *share))
            for member, share in zip(self.members, others, strict=True)
            if share[0].numbers
        ]
        joined, lost = Joined[Array](request.total), list[int]()
        answers = [self._alone(small, stored, *own)]  # even if there is nothing to do, new versions are kept
        for member, share, answer in asked:
            try:
                answers.append(ray.get(answer))
            except GONE:  # a block may be computed by anybody
                lost.append(member.number)
                answers.append(self._alone(small, stored, *share))
        for reply, arrays in answers:
            if reply.failure is not None:
                return reply, []
            lost.extend(reply.lost)
            for part in unpacked(reply, arrays):
                joined.add(part)
        return packed(joined, tuple(lost))

    def _keep(self, kinds: tuple[int | None, ...], refs: Iterator[ObjectRef]) -> None:
        """Keep the object references of this actor's vectors, to pass them on."""
        self.refs.make_room(kinds)
        for kind in kinds:
            if kind is not None and kind > 0:
                self.refs.use(kind)
            elif kind is not None:
                self.refs.add(-kind, next(refs))

    def _ask(self, member: Member, small: Arrays, request: Request, blocks: Arrays) -> ObjectRef:
        told = self.told[member.number]
        request = request._replace(kinds=told.kinds([kind and abs(kind) for kind in request.kinds]))
        refs = [self.refs.kept[version] for version in request.new_versions()]
        return member.actor.compute.remote(request, [*small, *blocks], refs if member.weight > 1 else [], *refs)

    def _alone(
        self, small: Arrays, stored: tuple[Array, ...], request: Request, blocks: Arrays
    ) -> tuple[Reply, Arrays]:
        large, rest = iter(stored), iter(small)
        shared = [next(rest) if kind is None else next(large) for kind in request.kinds if kind is None or kind < 0]
        return self.computer.compute(request, [array.copy() for array in (*shared, *blocks)])  # they are read-only
