"""ProxSkip, the inner loop of E-AiPOD: local steps with shifts, averaged at random times."""

from functools import partial
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt, Le
from torch import Tensor

from fedmbo_ray.core.cards import CODE, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw, Samples, unstack
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import Keeping, State
from fedmbo_ray.methods.schedules import StepSize
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import grad_y_lower


def shifted_steps(
    problem: Problem, batches: Samples, x: Tensor, y: Tensor, r_i: Tensor, step_size: float, pull: float
) -> tuple[Tensor, Tensor]:
    """Steps along ∇_y g_i − r_i; uploads y_i, keeps its part of the new shift r_i + (π/β)(ȳ − y_i)."""
    y_i = y
    for batch in unstack(batches):
        y_i = y_i - step_size * (grad_y_lower(problem, batch, x, y_i) - r_i)
    return y_i, r_i - pull * y_i


@settings
class ProxSkip(Keeping):
    """T steps y_i ← y_i − β(∇_y g_i − r_i); after each, with probability π, y_i ← ȳ and r_i ← r_i + (π/β)(ȳ − y_i).

    One coin for all clients, and always an average at the end: the upper level needs one y. The shifts r_i
    add up to zero, tend to ∇_y g_i(y*) and so take heterogeneity out. All clients take part.
    R communications, 1 + π(T − 1) in the mean; x is told once.
    """

    card: ClassVar[Card] = Card(
        "Xiao, Shen, Yin, Chen 2023 (AiPOD)", CODE, Cost("R", "p + R*q", "R*q"), participation="full"
    )

    steps: Count  # T
    probability: Annotated[float, Gt(0), Le(1)]  # π
    step_size: StepSize  # β
    batch_size: Count  # S

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"r": y.new_zeros(num_clients, len(y))}

    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        beta, r, everyone = self.step_size(clients.now), kept["r"], clients.everyone()
        pull = self.probability / beta
        kernel = partial(shifted_steps, step_size=beta, pull=pull)
        coins = clients.rng.random(self.steps - 1) < self.probability
        ends = np.append(np.flatnonzero(coins) + 1, self.steps)
        for count in np.diff(ends, prepend=0):
            draw = Draw("train", self.batch_size, count=int(count))
            y, r = clients.mean(kernel, everyone, x, y, own=r, draw=draw)
            r = r + pull * y
        return y, {"r": r}
