"""Blocks computed by a pool of Ray actors. An actor that dies is replaced, and its blocks run again."""

import contextlib
import math
from collections import Counter, deque
from collections.abc import Container
from functools import lru_cache
from typing import TypeAlias

import ray
import torch
from ray import ObjectRef, cloudpickle
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
from torch import Tensor

from fedmbo_ray.backends.ray.accelerator import GPU_ARITHMETIC
from fedmbo_ray.backends.ray.client_actor import ClientActor, Member
from fedmbo_ray.backends.ray.health import results_of
from fedmbo_ray.backends.ray.hierarchy import FAN_OUT, members, weight
from fedmbo_ray.backends.ray.messages import LARGE, Arrays
from fedmbo_ray.backends.ray.placement import cluster_nodes, require_room
from fedmbo_ray.backends.ray.protocol import VERSIONS_KEPT, KeptVectors, Reply, unpacked
from fedmbo_ray.backends.ray.transport import Assignment, CallLink, Gone, Link, SharedArray, SocketLink
from fedmbo_ray.backends.ray.waiting import Patience, Say, on_stderr
from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.sampling import Stacks
from fedmbo_ray.federation.execution import Block, BlockKernel, Job, Seconds
from fedmbo_ray.federation.reduction import Array, Joined, Part
from fedmbo_ray.federation.sent import VersionNumbers
from fedmbo_ray.problems.base import Task, is_predicting
from fedmbo_ray.problems.oracles import Gradient

ActorPlace: TypeAlias = "NodeAffinitySchedulingStrategy | PlacementGroupSchedulingStrategy | None"

ATTEMPTS = 3  # how often a block may lose its actor, beyond once for each actor, before the run gives up


class RayActors:
    """`actors` client actors of `cpus` and `gpus` each (fractions allowed); with `profile`, they sample their stacks.

    If room has been reserved for them, `places` are its scheduling strategies, one for each actor. `say` is called with
    a line of text when actors wait for room.
    """

    away = Seconds()

    def __init__(
        self,
        task: Task,
        actors: int,
        cpus: float = 1.0,
        gpus: float = 0.0,
        profile: bool = False,
        places: list[ActorPlace] | None = None,
        fan_out: int = FAN_OUT,
        say: Say = on_stderr,
    ) -> None:
        if places is None:
            require_room(actors, cpus, gpus, cluster_nodes())
        self.places = places or [None] * actors
        self.profile, self.profiles = profile, dict[str, Stacks]()
        self.options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0}
        self.args = (*map(ray.put, (*task[:2], stored_test(task))), profile)  # kept for actors that replace dead ones
        self.replaced = 0
        self.versions = VersionNumbers(most=VERSIONS_KEPT)
        self.patience = Patience(cpus, gpus, say)
        self.actors = list[ActorHandle]()
        try:
            self._begin(fan_out, anywhere=places is None)
        except BaseException:  # its traceback may keep the actors, which would start when there is room
            self._kill()
            raise

    def _begin(self, fan_out: int, anywhere: bool) -> None:
        for place in self.places:
            self.actors.append(self._start(place))
        nodes = results_of([actor.node.remote() for actor in self.actors], self.patience.look)
        here = ray.get_runtime_context().get_node_id()
        near = set(nodes) == {here}
        if near and anywhere:  # a replacement must be as near
            self.places = [NodeAffinitySchedulingStrategy(here, soft=False)] * len(nodes)
        self.near, self.store = near, KeptVectors[ObjectRef]()
        self.led = dict[int, list[int]]() if near else members(nodes, fan_out)
        self.leader = {member: leader for leader, each in self.led.items() for member in each}
        self.starting: dict[int, ObjectRef] = {}  # those of the led that are on their way
        self.links = {number: self._link(number) for number in range(len(nodes)) if number not in self.leader}
        for leader in self.led:
            self._introduce(leader)

    @property
    def description(self) -> str:
        """How many actors there are, how they are reached, and how their GPUs compute."""
        gpus = f", on GPUs: {GPU_ARITHMETIC}" if self.options["num_gpus"] else ""
        return f"ray, {len(self.actors)} actor(s) {'by socket' if self.near else 'by calls'}{gpus}"

    def _start(self, place: ActorPlace) -> ActorHandle:
        self.patience.begin()
        return ray.remote(ClientActor).options(**self.options, scheduling_strategy=place).remote(*self.args)

    def _link(self, number: int) -> Link:
        actor = self.actors[number]
        return SocketLink(actor) if self.near else CallLink(actor, self.store, leads=bool(self.led.get(number)))

    def _introduce(self, leader: int) -> None:
        """Tell a leader whom it leads, those alone that are there: work for others would wait."""
        there = [each for each in self.led[leader] if each not in self.starting]
        known = [Member(each, self.actors[each], weight(each, self.led)) for each in there]
        self.actors[leader].lead.remote(known)

    def _welcome(self) -> None:
        """Take in the replacements of dead actors that have started by now."""
        ready, _ = ray.wait(list(self.starting.values()), num_returns=len(self.starting), timeout=0)
        for number in [number for number, answer in self.starting.items() if answer in ready]:
            del self.starting[number]
            self._introduce(self.leader[number])

    def run(self, job: Job, blocks: list[Block]) -> Part[Tensor]:
        busy: dict[int, tuple[int, ...]] = {}
        if self.starting:
            self._welcome()
        try:
            return self._run(job, blocks, busy)
        except BaseException:  # nobody must take a late answer for one to the next job
            for number in busy:
                self._start_anew(number)
            raise

    def _run(self, job: Job, blocks: list[Block], busy: dict[int, tuple[int, ...]]) -> Part[Tensor]:
        spec = spec_of(job)
        self.versions.make_room(len(job.shared))
        shared = [SharedArray(part.numpy(), self._version(part)) for part in job.shared]
        joined = Joined[Array](len(blocks))
        waiting, lost = deque(range(len(blocks))), Counter[int]()
        while joined.whole is None:
            for number, link in self.links.items():
                if waiting and link.connected and number not in busy:
                    taken = tuple([waiting.popleft() for _ in range(self._share(job, len(waiting), number, busy))])
                    busy[number] = taken
                    try:
                        link.send(Assignment(spec, taken, [blocks[i] for i in taken], len(blocks)), shared)
                    except Gone:
                        self._replace(number, busy, waiting, lost)
            listening = {link: number for number, link in self.links.items() if number in busy or not link.connected}
            heard = next(iter(listening)).wait(list(listening))
            if not heard:
                self.patience.look(sum(not link.connected for link in listening))
            for link in heard:
                number = listening[link]
                try:
                    if link.connected:
                        self._collect(*link.receive(), joined)
                        del busy[number]
                    else:
                        link.connect()
                except Gone:
                    self._replace(number, busy, waiting, lost)
        return tensors(joined.whole)

    def _share(self, job: Job, waiting: int, number: int, busy: Container[int]) -> int:
        """How many blocks a free actor gets: over a socket, half of its share, so that a slow actor delays little.

        With calls, and for foreseen communications, it gets its whole share: the actor that has drawn a block's batches
        is to use them in the later communications, too.
        """
        if self.near and job.at is None:
            return math.ceil(waiting / (2 * len(self.links)))
        free = [i for i, link in self.links.items() if link.connected and i not in busy]
        return math.ceil(waiting * weight(number, self.led) / sum(weight(each, self.led) for each in free))

    def _collect(self, reply: Reply, arrays: Arrays, joined: Joined[Array]) -> None:
        if reply.failure is not None:
            raise RunFailed(reply.failure)
        for part in unpacked(reply, arrays):
            joined.add(part)
        for number in reply.lost:
            self._start_anew(number)

    def _replace(self, number: int, busy: dict[int, tuple[int, ...]], waiting: deque[int], lost: Counter[int]) -> None:
        """Give the dead actor's blocks back and start another actor in its place."""
        taken = busy.pop(number, ())
        lost.update(taken or [-1])
        if max(lost.values()) >= ATTEMPTS + len(self.links):
            raise RunFailed(f"client actors keep dying; the last message was: {self._last_words(number)}")
        waiting.extendleft(reversed(taken))
        self._start_anew(number)

    def _start_anew(self, number: int) -> None:
        ray.kill(self.actors[number])
        self.replaced += 1
        self.actors[number] = self._start(self.places[number])
        if number in self.links:
            self.links[number].close()
            self.links[number] = self._link(number)
        else:
            self.starting[number] = self.actors[number].node.remote()
            self._introduce(self.leader[number])
        if number in self.led:
            self._introduce(number)

    def _last_words(self, number: int) -> str:
        try:
            ray.get(self.actors[number].node.remote(), timeout=5)
        except ray.exceptions.RayError as error:
            return " ".join(str(error).split())
        return "nothing"

    def _version(self, part: Tensor) -> int | None:
        """The version number of a large vector; None for a small one, which is sent every time."""
        return None if part.nbytes < LARGE else self.versions.of(part)

    def close(self) -> None:
        for link in self.links.values():
            link.close()
        for number, actor in enumerate(self.actors if self.profile else (), 1):
            with contextlib.suppress(ray.exceptions.RayError):  # it is gone, and its profile with it
                self.profiles[f"client actor {number}"] = ray.get(actor.profile.remote(), timeout=30)
        self._kill()

    def _kill(self) -> None:
        for actor in self.actors:
            ray.kill(actor)


def stored_test(task: Task) -> Arrays | None:
    """The test data as arrays, which all actors of a node share; None if actors don't need them."""
    return None if task.test is None or not is_predicting(task.problem) else [field.numpy() for field in task.test]


def spec_of(job: Job) -> bytes:
    """What the actors are to do, pickled. Pickling takes longer than sending, so the pickles of oracles are kept."""
    what = (job.kernel, job.draw, job.summed, job.own, job.at)
    return pickled_once(what) if isinstance(job.kernel, Gradient | BlockKernel) else cloudpickle.dumps(what)


pickled_once = lru_cache(maxsize=64)(cloudpickle.dumps)


def tensors(part: Part[Array]) -> Part[Tensor]:
    sums, rows = tuple(map(tensor, part.sums)), tuple(tuple(map(tensor, row)) for row in part.rows)
    return Part(part.first, part.size, sums, rows)


def tensor(array: Array) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())
