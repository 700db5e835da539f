"""Blocks computed by a pool of Ray actors. An actor that dies is replaced, and its blocks run again."""

import contextlib
import math
from collections import Counter, deque
from functools import partial
from typing import Any

import ray
import torch
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from torch import Tensor

from fedmbo_ray.backends.client_actor import ClientActor, Reply
from fedmbo_ray.backends.links import CallLink, Gone, Shared, SocketLink
from fedmbo_ray.backends.messages import LARGE, Arrays
from fedmbo_ray.blocks import Block, Job
from fedmbo_ray.data import ClientData
from fedmbo_ray.federation import RunFailed
from fedmbo_ray.oracles import Gradient
from fedmbo_ray.placement import capacity, cluster_nodes, total
from fedmbo_ray.profiling import Stacks
from fedmbo_ray.registry import ConfigError

ATTEMPTS = 3  # how often a block may lose its actor, beyond once for each actor, before the run gives up


class RayActors:
    """`actors` client actors of `cpus` and `gpus` each (fractions allowed); with `profile`, they watch themselves.

    Where room has been reserved for them, `places` are its scheduling strategies, one for each actor.
    """

    def __init__(
        self,
        problem: Any,
        data: ClientData,
        actors: int,
        cpus: float = 1.0,
        gpus: float = 0.0,
        profile: bool = False,
        places: list[Any] | None = None,
    ) -> None:
        if places is None:
            require_room(actors, cpus, gpus)
        self.places = places or [None] * actors
        self.profile, self.profiles = profile, dict[str, Stacks]()
        self.options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0}
        self.args = (ray.put(problem), ray.put(data), profile)  # kept: a replacement needs them, too
        self.replaced = 0
        self.kept: deque[tuple[Tensor, int, int]] = deque(maxlen=4)
        self.version = 0
        self.specs: dict[Any, bytes] = {}
        handles = [self._start(place) for place in self.places]
        nodes = set(ray.get([handle.node.remote() for handle in handles]))
        here = ray.get_runtime_context().get_node_id()
        if nodes == {here} and places is None:  # a replacement must be as near
            self.places = [NodeAffinitySchedulingStrategy(here, soft=False)] * actors
        self.link: Any = SocketLink if nodes == {here} else partial(CallLink, store={})
        self.links: list[Any] = [self.link(handle) for handle in handles]

    @property
    def description(self) -> str:
        """How many actors there are, and how they are reached."""
        return f"ray, {len(self.links)} actor(s) {'by socket' if self.link is SocketLink else 'by calls'}"

    def _start(self, place: Any) -> Any:
        return ray.remote(ClientActor).options(**self.options, scheduling_strategy=place).remote(*self.args)

    def run(self, job: Job, blocks: list[Block]) -> list[tuple[Tensor, ...]]:
        busy: dict[Any, list[int]] = {}
        try:
            return self._run(job, blocks, busy)
        except BaseException:  # nobody must take a late answer for one to the next job
            for link in busy:
                self._start_anew(link)
            raise

    def _run(self, job: Job, blocks: list[Block], busy: dict[Any, list[int]]) -> list[tuple[Tensor, ...]]:
        spec = self._spec(job)
        shared = [Shared(part.numpy(), self._version(part)) for part in job.shared]
        blocks = [block._replace(each=tuple(rows.numpy() for rows in block.each)) for block in blocks]
        results: dict[int, tuple[Tensor, ...]] = {}
        waiting, lost = deque(range(len(blocks))), Counter[int]()
        while len(results) < len(blocks):
            for link in self.links:
                if waiting and link.channel is not None and link not in busy:
                    share = [waiting.popleft() for _ in range(self._share(len(waiting)))]
                    busy[link] = share
                    try:
                        link.send(spec, shared, [blocks[i] for i in share])
                    except Gone:
                        self._replace(link, busy, waiting, lost)
            listening = [link for link in self.links if link in busy or link.channel is None]
            for link in listening[0].wait(listening):
                try:
                    if link.channel is None:
                        link.connect()
                    else:
                        reply, arrays = link.receive()
                        self._collect(reply, arrays, busy[link], results)
                        del busy[link]
                except Gone:
                    self._replace(link, busy, waiting, lost)
        return [results[i] for i in range(len(blocks))]

    def _share(self, waiting: int) -> int:
        """How many blocks the next free actor takes: half of its part, so that a slow actor delays little."""
        actors = len(self.links)
        return 1 if waiting <= actors else math.ceil(waiting / (2 * actors))

    @staticmethod
    def _collect(reply: Reply, arrays: Arrays, share: list[int], results: dict[int, tuple[Tensor, ...]]) -> None:
        if reply.failure is not None:
            raise RunFailed(f"a client's computation raised:\n{reply.failure}")
        rest = iter(arrays)
        for i, outputs in zip(share, reply.outputs, strict=True):
            results[i] = tuple([torch.from_numpy(writable(next(rest))) for _ in range(outputs)])

    def _replace(self, link: Any, busy: dict[Any, list[int]], waiting: deque[int], lost: Counter[int]) -> None:
        """Give the dead actor's blocks back and start another actor in its place."""
        share = busy.pop(link, [])
        lost.update(share or [-1])
        if max(lost.values()) >= ATTEMPTS + len(self.links):
            raise RunFailed(f"client actors die one after the other; the last said: {self._last_words(link)}")
        waiting.extendleft(reversed(share))
        self._start_anew(link)

    def _start_anew(self, link: Any) -> None:
        link.close()
        ray.kill(link.actor)
        self.replaced += 1
        number = self.links.index(link)
        self.links[number] = self.link(self._start(self.places[number]))

    @staticmethod
    def _last_words(link: Any) -> str:
        try:
            ray.get(link.actor.node.remote(), timeout=5)
        except ray.exceptions.RayError as error:
            return " ".join(str(error).split())
        return "nothing"

    def _spec(self, job: Job) -> bytes:
        """What the actors are to do; pickling it takes longer than sending it, so oracles are done once."""
        what = (job.kernel, job.draw, job.summed, job.own)
        if not isinstance(job.kernel, Gradient):
            return cloudpickle.dumps(what)
        if what not in self.specs:
            self.specs[what] = cloudpickle.dumps(what)
        return self.specs[what]

    def _version(self, part: Tensor) -> int | None:
        """The number of a large vector, the same until it is another object or written to; None for a small one."""
        if part.nbytes < LARGE:
            return None
        for kept, writes, version in self.kept:
            if kept is part and writes == part._version:
                return version
        self.version += 1
        self.kept.append((part, part._version, self.version))
        return self.version

    def close(self) -> None:
        for number, link in enumerate(self.links, 1):
            link.close()
            if self.profile:
                with contextlib.suppress(ray.exceptions.RayError):  # it is gone, and its profile with it
                    self.profiles[f"client actor {number}"] = ray.get(link.actor.profile.remote(), timeout=30)
            ray.kill(link.actor)


def writable(array: Any) -> Any:
    return array if array.flags.writeable else array.copy()


def require_room(actors: int, cpus: float, gpus: float) -> None:
    """Raise a ConfigError at once if the cluster could never place the actors."""
    nodes = cluster_nodes()
    asked = {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount}
    room = sum(capacity(node, asked) for node in nodes)
    if room < actors:
        raise ConfigError(
            f"{actors} actors of {cpus:g} CPU and {gpus:g} GPU must fit the cluster, but it has {total(nodes)}, "
            f"room for {room:g}",
            "clients",
            "actors",
        )
