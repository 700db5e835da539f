"""The package's own arms: a config, run by a backend."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from fedmbo_ray.building import build_federation
from fedmbo_ray.config import RunConfig
from fedmbo_ray.data import Draw
from fedmbo_ray.federation import Clients
from fedmbo_ray.oracles import grads_lower
from fedmbo_ray.problems.base import Task
from fedmbo_ray.registry import Count, Positive, settings
from fedmbo_ray.rng import stream

State = dict[str, Tensor]


@settings
class FedSGD:
    """(x, y) ← (x, y) − α·mean_{i∈C} ∇g_i(x, y; ζ_i): the single-level task that other frameworks can do, too."""

    first_order: ClassVar[bool] = True

    step_size: Positive  # α
    batch_size: Count

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y}

    def round(self, clients: Clients, state: State) -> State:
        x, y = state["x"], state["y"]
        G_x, G_y = clients.mean(grads_lower, clients.sample(), x, y, draw=Draw("train", self.batch_size))
        return {"x": x - self.step_size * G_x, "y": y - self.step_size * G_y}


class Frame:
    """An algorithm on a backend of the package."""

    def __init__(self, config: RunConfig, task: Task, backend: Any, algorithm: Any = None) -> None:
        self.config, self.task, self.backend = config, task, backend
        self.algorithm = config.algorithm if algorithm is None else algorithm
        self.federation = build_federation(config, task, backend)
        self.state = self.algorithm.init(*task.problem.init(stream(config.seed, "init")), task.data.num_clients)
        self.round = 0

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            rng = stream(self.config.seed, "round", self.round)
            self.state = self.algorithm.round(self.federation.clients(rng, self.round), self.state)
            self.round += 1

    def figures(self) -> dict[str, float]:
        with torch.no_grad():
            metrics = self.task.problem.metrics(self.state["x"], self.state["y"], self.task.test)
        return {"rounds": self.round, **metrics}

    def close(self) -> None:
        self.backend.close()


class Bare:
    """A loop written by hand: `loop.round(k, x, y) -> x, y`."""

    def __init__(self, config: RunConfig, task: Task, loop: Any) -> None:
        self.task, self.loop, self.round = task, loop, 0
        self.x, self.y = task.problem.init(stream(config.seed, "init"))

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.x, self.y = self.loop.round(self.round, self.x, self.y)
            self.round += 1

    def figures(self) -> dict[str, float]:
        with torch.no_grad():
            return {"rounds": self.round, **self.task.problem.metrics(self.x, self.y, self.task.test)}

    def close(self) -> None:
        close = getattr(self.loop, "close", None)
        if close is not None:
            close()
