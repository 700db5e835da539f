"""All blocks computed here, one after the other: no Ray, the reference for every other backend."""

from typing import Any

import torch

from fedmbo_ray.blocks import Block, Job, run_block
from fedmbo_ray.data import ClientData
from fedmbo_ray.joining import Part


class InProcess:
    description = "in_process"

    def __init__(self, problem: Any, data: ClientData) -> None:
        self.problem, self.data = problem, data

    def run(self, job: Job, blocks: list[Block]) -> Part:
        cpu = torch.device("cpu")
        return job.whole((run_block(self.problem, self.data, job, block, cpu) for block in blocks), len(blocks))

    def close(self) -> None: ...
