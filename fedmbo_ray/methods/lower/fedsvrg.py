"""FedSVRG, the inner loop of FedNest (FedInn)."""

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


def local_svrg(problem: Problem, batches: Samples, x: Tensor, y: Tensor, q: Tensor, step_size: float) -> Tensor:
    """Steps along ∇_y g_i(x, y_i; ζ) − ∇_y g_i(x, y; ζ) + q, the same ζ in both terms."""
    y_i = y
    for batch in unstack(batches):
        correction = grad_y_lower(problem, batch, x, y_i) - grad_y_lower(problem, batch, x, y)
        y_i = y_i - step_size * (correction + q)
    return y_i


@settings
class FedSVRG:
    """q = mean_{i∈C} ∇_y g_i(x, y) on all local data; then τ local steps corrected towards q, averaged over C.

    Two communications per step with one cohort, which keeps what it was told: down p + 2q, up 2q.
    With τ = 1 it is one gradient step along q.
    """

    card: ClassVar[Card] = Card("Tarzanagh et al. 2022 (FedNest)", CODE, Cost("2*T", "T*(p + 2*q)", "T*2*q"))

    steps: Count  # T
    local_steps: Count  # τ
    step_size: StepSize  # β
    batch_size: Count  # S

    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        kernel = partial(local_svrg, step_size=self.step_size(clients.now))
        draw = Draw("train", self.batch_size, count=self.local_steps)
        for _ in range(self.steps):
            cohort = clients.sample()
            q = clients.mean(grad_y_lower, cohort, x, y, draw=Draw("train", None))
            y = clients.mean(kernel, cohort, x, y, q, draw=draw)
        return y, kept
