"""What the model needs to know, measured; and rounds on the nodes that there are, to check it with."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from torch import Tensor

from benchmarks.arms import Frame
from benchmarks.scaling.model import Communication, Costs, Machines, Replay
from fedmbo_ray.backends.ray.messages import LARGE
from fedmbo_ray.backends.ray.pool import RayActors
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.federation.execution import Block, Job, Seconds
from fedmbo_ray.federation.reduction import Part
from fedmbo_ray.federation.sent import VersionNumbers
from fedmbo_ray.problems.base import Task

REPEATS = 30
LARGE_FLOATS = 200_000


class Traced:
    """A backend that notes what a communication would send, and how long its blocks take."""

    description = "traced"
    away = Seconds()

    def __init__(self, backend: Any) -> None:
        self.backend, self.seen = backend, list[Communication]()
        self.versions, self.stored = VersionNumbers(), set[int]()

    def run(self, job: Job, blocks: list[Block]) -> Part[Tensor]:
        start = time.perf_counter()
        result = self.backend.run(job, blocks)
        seconds = (time.perf_counter() - start) / len(blocks)
        large = [part for part in job.shared if part.nbytes >= LARGE]
        new = [part for part in large if self.versions.of(part) not in self.stored]
        self.stored.update(map(self.versions.of, new))
        self.seen.append(
            Communication(
                blocks=len(blocks),
                compute=seconds,
                shared=sum(part.nbytes for part in job.shared) - sum(part.nbytes for part in large),
                stored=sum(part.nbytes for part in new),
                each=mean(sum(array.nbytes for array in (each.clients, each.seeds, *each.each)) for each in blocks),
                sums=sum(part.nbytes for part in result.sums),
                rows=mean(sum(part.nbytes for part in rows) for rows in result.rows),
            )
        )
        return result

    def close(self) -> None:
        self.backend.close()


def mean(values: Any) -> float:
    return statistics.mean(list(values))


def trace(config: RunConfig, task: Task, node: str, prices: Costs, rounds: int) -> list[list[Communication]]:
    """What each of some rounds does on one actor of a node; computing is what calls don't take."""
    place = NodeAffinitySchedulingStrategy(node, soft=False)
    traced = Traced(RayActors(task, 1, cpus=0.01, places=[place]))
    frame, found, one = Frame(config, task, traced), [], Replay(Machines(1, 1), prices)
    for _ in range(2 + rounds):
        traced.seen = []
        frame.run(1)
        calls = [one.communication(each._replace(compute=0.0)) for each in traced.seen]
        pairs = zip(traced.seen, calls, strict=True)
        found.append([each._replace(compute=max(0.0, each.compute - took / each.blocks)) for each, took in pairs])
    traced.close()
    return found[2:]


class Echo:
    """As an actor of clients, without anything to compute."""

    def compute(self, request: Any, blocks: Any, stored: Any, size: int) -> Any:
        return request, [np.zeros(size, dtype=np.float32)] if size else []


def costs(nodes: list[str], network: float) -> Costs:
    """Of calls to actors on these nodes."""
    places = [NodeAffinitySchedulingStrategy(nodes[i % len(nodes)], soft=False) for i in range(4)]
    actors = [ray.remote(Echo).options(num_cpus=0, scheduling_strategy=place).remote() for place in places]
    rows = [np.zeros(5, dtype=np.int64), np.zeros(5, dtype=np.uint64)]

    def exchange(count: int, size: int) -> float:
        return timed(lambda: ray.get([each.compute.remote(b"", rows, [], size) for each in actors[:count]]))

    exchange(4, LARGE_FLOATS)
    one, four, large = (
        statistics.median(times) for times in interleaved(exchange, [(1, 0), (4, 0), (1, LARGE_FLOATS)])
    )
    for actor in actors:
        ray.kill(actor)
    call = (four - one) / 3
    return Costs(call, max(0.0, (one - call) / 2), max(0.0, (large - one) / (4 * LARGE_FLOATS)), network)


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(work: Callable[..., float], choices: list[tuple[Any, ...]]) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in choices]
    for _ in range(REPEATS):
        for found, choice in zip(times, choices, strict=True):
            found.append(work(*choice))
    return times


def measured(config: RunConfig, task: Task, nodes: list[str], actors: int, rounds: int) -> float:
    """Seconds for a round with so many actors on each of these nodes; the median of some."""
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes for _ in range(actors)]
    frame = Frame(config, task, RayActors(task, len(places), cpus=0.01, places=places))
    try:
        frame.run(2)
        return statistics.median(timed(lambda: frame.run(1)) for _ in range(rounds))
    finally:
        frame.close()
