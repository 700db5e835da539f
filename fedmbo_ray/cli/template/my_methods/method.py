"""Template of a whole method: ``init`` returns the first state, ``round`` does one outer iteration."""

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from fedmbo_ray import (
    Card,
    Clients,
    Constant,
    Cost,
    Count,
    Draw,
    Problem,
    Samples,
    State,
    StepSize,
    oracles,
    settings,
    unstack,
)


def local_soba(
    problem: Problem, batches: tuple[Samples, Samples], x: Tensor, y: Tensor, v: Tensor, alpha: float, beta: float
) -> tuple[Tensor, ...]:
    """A kernel: what one client computes and uploads."""
    for batch in unstack(batches):
        d_x, d_y, d_v = oracles.grads_lagrangian(problem, batch, x, y, v)
        x, y, v = x - alpha * d_x, y + beta * d_v, v + beta * d_y
    return x, y, v


@settings
class LocalSOBA:
    """τ local steps on (x, y, v), then the mean over a cohort."""

    card: ClassVar[Card] = Card("this template", "ours", Cost("1", "p + 2*q", "p + 2*q"), heterogeneity="drift")

    step_size: StepSize = Constant(0.02)  # α; every parameter of a method has a default, so that its name is enough
    lower_step_size: StepSize = Constant(0.1)  # β
    local_steps: Count = 3  # τ
    batch_size: Count = 32

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        """The state of round 0: tensors by name, including x and y. Checkpoints save it."""
        return {"x": x, "y": y, "v": torch.zeros_like(y)}

    def round(self, clients: Clients, state: State) -> State:
        kernel = partial(local_soba, alpha=self.step_size(clients.now), beta=self.lower_step_size(clients.now))
        draw = tuple(Draw(split, self.batch_size, self.local_steps) for split in ("validation", "train"))
        x, y, v = clients.mean(kernel, clients.sample(), state["x"], state["y"], state["v"], draw=draw)
        return {"x": x, "y": y, "v": v}
