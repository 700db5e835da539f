"""FedAvg (local SGD) on the lower problem."""

from functools import partial
from typing import ClassVar

from torch import Tensor

from fedmbo_ray.core.cards import CODE, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw, Samples, unstack
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.methods.schedules import StepSize
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import grad_y_lower


def local_sgd(problem: Problem, batches: Samples, x: Tensor, y: Tensor, step_size: float) -> Tensor:
    for batch in unstack(batches):
        y = y - step_size * grad_y_lower(problem, batch, x, y)
    return y


@settings
class FedAvg:
    """y ← mean_{i∈C} y_i after τ local steps y_i ← y_i − β∇_y g_i(x, y_i; ζ). One communication per step.

    Under heterogeneity its fixed point is off y* by O(βτ). With τ = 1 it is minibatch SGD.
    """

    card: ClassVar[Card] = Card(
        "McMahan et al. 2017 (FedAvg)", CODE, Cost("T", "T*(p + q)", "T*q"), heterogeneity="drift"
    )

    steps: Count  # T
    local_steps: Count  # τ
    step_size: StepSize  # β
    batch_size: Count  # S

    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        kernel = partial(local_sgd, step_size=self.step_size(clients.now))
        draw = Draw("train", self.batch_size, count=self.local_steps)
        for _ in range(self.steps):
            y = clients.mean(kernel, clients.sample(), x, y, draw=draw)
        return y, kept
