"""Several runs in one process, side by side: what their clients compute at the same time is computed in one call.

Small problems spend their time on the calls, not in them. Each run is a greenlet that stops whenever it waits for its
clients; when all have stopped, those that wait for the same thing are served together. Runs know nothing of it, and
the bits of each are those that it would have alone.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, TypeVar

import torch
from greenlet import GreenletExit, getcurrent, greenlet
from torch import Tensor

from fedmbo_ray.federation.execution import Block, Job, Seconds, joinable, now, run_block, run_together
from fedmbo_ray.federation.prepared import Prepared
from fedmbo_ray.federation.reduction import Part
from fedmbo_ray.problems.base import Task, capabilities

CPU = torch.device("cpu")
T = TypeVar("T")


class PendingJob(NamedTuple):
    """What a run waits for."""

    backend: "Lockstep"
    job: Job
    blocks: list[Block]

    @property
    def kind(self) -> Hashable:
        """Equal for jobs that can be done in one call."""
        job, each = self.job, len(self.blocks[0].each)
        return id(self.backend.task.problem), job.kernel, job.draw, job.summed, len(job.shared), each


class Lockstep:
    """The backend of one run. Runs with equal tasks have the same `task` object."""

    description = "in_process"

    def __init__(self, task: Task) -> None:
        self.task, self.away, self.prepared = task, Seconds(), Prepared()

    def run(self, job: Job, blocks: list[Block]) -> Part[Tensor]:
        hub = getcurrent().parent
        if hub is None or not joinable(self.task.problem, job):
            results = (run_block(self.task, job, block, CPU, self.prepared) for block in blocks)
            return job.whole(results, len(blocks))
        if job.at is not None:  # the foreseen communications of other runs are different ones
            blocks, job = [now(job, block)[1] for block in blocks], job._replace(at=None)
        left = Seconds.now()
        part, own = hub.switch(PendingJob(self, job, blocks))
        self.away = self.away.plus(Seconds.now().minus(left).minus(own))
        return part

    def serve(self, pending: list[PendingJob]) -> list[tuple[Part[Tensor], Seconds]]:
        """What each run waits for, and its share of the seconds, by its blocks."""
        began = Seconds.now()
        calls = [(job, block) for _, job, blocks in pending for block in blocks]
        results = iter(run_together(self.task, calls, CPU))
        parts = [job.whole(islice(results, len(blocks)), len(blocks)) for _, job, blocks in pending]
        spent = Seconds.now().minus(began)
        shares = [Seconds().plus(spent, len(each.blocks) / len(calls)) for each in pending]
        return list(zip(parts, shares, strict=True))

    def close(self) -> None: ...


class SharedBackends:
    """Makes backends; those with equal tasks share one task object."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def __call__(self, task: Task) -> Lockstep:
        stacks = capabilities(task.problem).stacks_all
        known = next((each for each in self.tasks if stacks and each.problem == task.problem), task)
        self.tasks.append(known)
        return Lockstep(known)


def advance(runs: list[Iterator[T]]) -> list[T | None]:
    """The next item of each run, None of one that has ended. If one raises, the others end where they wait."""
    steps = [greenlet(next) for _ in runs]
    try:
        return _advanced(runs, steps)
    except BaseException:
        for step in steps:
            with suppress(Exception):  # what the first one raised is what is told
                step.throw(GreenletExit)
        raise


def _advanced(runs: list[Iterator[T]], steps: list[greenlet]) -> list[T | None]:
    answers = [step.switch(run, None) for step, run in zip(steps, runs, strict=True)]
    waiting: dict[Hashable, list[int]] = defaultdict(list)
    for i, step in enumerate(steps):
        if not step.dead:
            waiting[answers[i].kind].append(i)
    while waiting:
        served = waiting.pop(max(waiting, key=lambda kind: len(waiting[kind])))
        pending = [answers[i] for i in served]
        for i, part in zip(served, pending[0].backend.serve(pending), strict=True):
            answers[i] = steps[i].switch(part)
            if not steps[i].dead:
                waiting[answers[i].kind].append(i)
    return answers
