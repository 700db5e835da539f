"""The usual way to put clients on Ray: an actor for each client of a cohort, which gets and returns all weights."""

from typing import Any

import ray
import torch
from torch import Tensor

from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.data.batches import Draw


@ray.remote
class Client:
    def __init__(self, problem: Any, data: Any) -> None:
        torch.set_num_threads(1)
        self.problem, self.data = problem, data

    def step(self, x: Any, y: Any, client: Any, seed: Any, size: int, step_size: float) -> tuple[Any, Any]:
        batches = self.data.draw(client, seed, Draw("train", size), torch.device("cpu"))
        batch = type(batches)(*(field[0] for field in batches))
        weights = [torch.tensor(part).requires_grad_() for part in (x, y)]
        gradients = torch.autograd.grad(self.problem.lower(*weights, batch), weights)
        new = [(part - step_size * gradient).detach() for part, gradient in zip(weights, gradients, strict=True)]
        return new[0].numpy(), new[1].numpy()


class ActorPerClient:
    """One step of SGD on each of n clients, and the mean of their weights."""

    def __init__(self, task: Any, seed: int, n: int, size: int, step_size: float) -> None:
        self.seed, self.n, self.size, self.step_size = seed, n, size, step_size
        self.m = task.data.num_clients
        problem, data = ray.put(task.problem), ray.put(task.data)
        self.actors = [Client.options(num_cpus=0.01).remote(problem, data) for _ in range(n)]

    def round(self, k: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        rng = stream(self.seed, "round", k)
        cohort, seeds = rng.integers(self.m, size=self.n), draw_seeds(rng, self.n)
        weights = ray.put(x.numpy()), ray.put(y.numpy())
        calls = [
            actor.step.remote(*weights, cohort[i : i + 1], seeds[i : i + 1], self.size, self.step_size)
            for i, actor in enumerate(self.actors)
        ]
        xs, ys = zip(*ray.get(calls), strict=True)
        return sum(map(torch.tensor, xs)) / self.n, sum(map(torch.tensor, ys)) / self.n  # type: ignore[return-value]

    def close(self) -> None:
        for actor in self.actors:
            ray.kill(actor)
