"""Template of a whole method: ``init`` makes a state, ``round`` one outer iteration of it."""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedmbo_ray.cards import OURS, Card, Cost
from fedmbo_ray.data import Draw, unstack
from fedmbo_ray.federation import Clients
from fedmbo_ray.oracles import grads_lagrangian
from fedmbo_ray.registry import Count, settings
from fedmbo_ray.schedules import Constant, StepSize


def local_steps(problem: Any, batches: Any, x: Tensor, y: Tensor, v: Tensor, alpha: float, beta: float) -> Any:
    """A kernel: what one client computes. What it returns is uploaded."""
    for batch in unstack(batches):
        d_x, d_y, d_v = grads_lagrangian(problem, batch, x, y, v)
        x, y, v = x - alpha * d_x, y + beta * d_v, v + beta * d_y
    return x, y, v


@settings
class LocalSOBA:
    """τ local steps on (x, y, v), then the mean over a cohort."""

    card: ClassVar[Card] = Card("this template", OURS, Cost("1", "p + 2*q", "p + 2*q"), heterogeneity="drift")

    step_size: StepSize = Constant(0.02)  # α; every parameter of a method has a default, so that its name is enough
    lower_step_size: StepSize = Constant(0.1)  # β
    local_steps: Count = 3  # τ
    batch_size: Count = 32

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> dict[str, Tensor]:
        """The state of round 0: tensors by name, x and y among them. It is all that a checkpoint keeps."""
        return {"x": x, "y": y, "v": torch.zeros_like(y)}

    def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        kernel = partial(local_steps, alpha=self.step_size(clients), beta=self.lower_step_size(clients))
        draw = tuple(Draw(split, self.batch_size, self.local_steps) for split in ("validation", "train"))
        x, y, v = clients.mean(kernel, clients.sample(), state["x"], state["y"], state["v"], draw=draw)
        return {"x": x, "y": y, "v": v}
