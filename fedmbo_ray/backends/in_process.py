"""All blocks computed here, one after the other: no Ray, the reference for every other backend."""

import torch
from torch import Tensor

from fedmbo_ray.federation.execution import Block, Job, Seconds, run_block
from fedmbo_ray.federation.prepared import Prepared
from fedmbo_ray.federation.reduction import Part
from fedmbo_ray.problems.base import Task


class InProcess:
    description = "in_process"
    away = Seconds()

    def __init__(self, task: Task) -> None:
        self.task, self.prepared = task, Prepared()

    def run(self, job: Job, blocks: list[Block]) -> Part[Tensor]:
        cpu = torch.device("cpu")
        return job.whole((run_block(self.task, job, block, cpu, self.prepared) for block in blocks), len(blocks))

    def close(self) -> None: ...
