"""The package's own arms: a config, run by a backend."""

from typing import Any, ClassVar

from torch import Tensor

from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.cards import Card
from fedmbo_ray.core.rng import stream
from fedmbo_ray.core.settings import Count, Positive, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.federation.execution import Backend
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.figures import metrics_of
from fedmbo_ray.problems.oracles import grads_lower
from fedmbo_ray.runs.loop import Loop

State = dict[str, Tensor]


@settings
class FedSGD:
    """(x, y) ← (x, y) − α·mean_{i∈C} ∇g_i(x, y; ζ_i): the single-level task that other frameworks can do, too."""

    card: ClassVar[Card] = Card("McMahan et al. 2017", "standard", first_order=True)

    step_size: Positive  # α
    batch_size: Count

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y}

    def round(self, clients: Clients, state: State) -> State:
        x, y = state["x"], state["y"]
        G_x, G_y = clients.mean(grads_lower, clients.sample(), x, y, draw=Draw("train", self.batch_size))
        return {"x": x - self.step_size * G_x, "y": y - self.step_size * G_y}


class Frame:
    """An algorithm on a backend of the package: its own loop, without records."""

    def __init__(self, config: RunConfig, task: Task, backend: Backend, algorithm: Any = None) -> None:
        record = config.record.model_copy(update={"every": config.rounds})
        chosen = {"record": record} | ({} if algorithm is None else {"algorithm": algorithm})
        self.loop = Loop(config.model_copy(update=chosen), make_backend=lambda task: backend, task=task)

    @property
    def state(self) -> State:
        return self.loop.state

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.loop.step()

    def figures(self) -> dict[str, float]:
        state, task = self.state, self.loop.task
        return {"rounds": self.loop.round, **metrics_of(task.problem, state["x"], state["y"], task.test)}

    def close(self) -> None:
        self.loop.close()


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
        return {"rounds": self.round, **metrics_of(self.task.problem, self.x, self.y, self.task.test)}

    def close(self) -> None:
        close = getattr(self.loop, "close", None)
        if close is not None:
            close()
