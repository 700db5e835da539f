"""Several runs in one process, side by side: what their clients compute at the same time is computed in one call.

Small problems spend their time on the calls, not in them. Each run is a greenlet that stops whenever it waits for its
clients; when all have stopped, those that wait for the same thing are served together. Runs know nothing of it, and
the bits of each are those that it would have alone.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch
from greenlet import getcurrent, greenlet

from fedmbo_ray.blocks import Block, Job, run_block, run_together
from fedmbo_ray.joining import Part
from fedmbo_ray.oracles import Gradient, stacks_all
from fedmbo_ray.problems.base import Task

CPU = torch.device("cpu")


class Request(NamedTuple):
    """What a run waits for."""

    backend: "Lockstep"
    job: Job
    blocks: list[Block]

    @property
    def kind(self) -> Hashable:
        """Equal for requests that can be served in one call."""
        job, each = self.job, len(self.blocks[0].each)
        return id(self.backend), id(job.kernel), job.draw, job.summed, len(job.shared), each


class Lockstep:
    """The backend of all runs with one task."""

    description = "in_process"

    def __init__(self, task: Task) -> None:
        self.problem, self.data = task.problem, task.data

    def run(self, job: Job, blocks: list[Block]) -> Part:
        hub = getcurrent().parent
        if hub is None or not isinstance(job.kernel, Gradient) or not stacks_all(self.problem):
            return job.whole((run_block(self.problem, self.data, job, block, CPU) for block in blocks), len(blocks))
        return hub.switch(Request(self, job, blocks))

    def serve(self, requests: list[Request]) -> Iterator[Part]:
        calls = [(job, block) for _, job, blocks in requests for block in blocks]
        results = iter(run_together(self.problem, self.data, calls, CPU))
        for _, job, blocks in requests:
            yield job.whole(islice(results, len(blocks)), len(blocks))

    def close(self) -> None: ...


class Shared:
    """Makes backends; runs with equal tasks get the same one."""

    def __init__(self) -> None:
        self.backends: list[Lockstep] = []

    def __call__(self, task: Task) -> Lockstep:
        if not stacks_all(task.problem):
            return Lockstep(task)
        known = next((each for each in self.backends if each.problem == task.problem), None)
        if known is None:
            known = Lockstep(task)
            self.backends.append(known)
        return known


def advance(runs: list[Iterator[Any]]) -> list[Any]:
    """The next item of each run, None of one that has ended."""
    steps = [greenlet(next) for _ in runs]
    answers = [step.switch(run, None) for step, run in zip(steps, runs, strict=True)]
    waiting: dict[Hashable, list[int]] = defaultdict(list)
    for i, step in enumerate(steps):
        if not step.dead:
            waiting[answers[i].kind].append(i)
    while waiting:
        served = waiting.pop(max(waiting, key=lambda kind: len(waiting[kind])))
        requests = [answers[i] for i in served]
        for i, part in zip(served, requests[0].backend.serve(requests), strict=True):
            answers[i] = steps[i].switch(part)
            if not steps[i].dead:
                waiting[answers[i].kind].append(i)
    return answers
