"""FedLin (Mitra et al. 2021): FedSVRG with full local gradients and unequal numbers of local steps."""

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from fedmbo_ray.core.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw, Samples, unstack
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.methods.schedules import StepSize, StepsPerClient
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import grad_y_lower


def unequal_steps(
    problem: Problem, batches: tuple[Samples, Tensor], x: Tensor, y: Tensor, q: Tensor, step_size: float
) -> Tensor:
    """τ_i steps of size β/τ_i along ∇_y g_i(x, y_i) − ∇_y g_i(x, y) + q; a slot that is done waits."""
    passes, tau = list(unstack(batches[0])), batches[1].to(y.dtype)
    y_i, anchor = y, grad_y_lower(problem, passes[0], x, y)
    for t, batch in enumerate(passes):
        step = (step_size / tau) * (grad_y_lower(problem, batch, x, y_i) - anchor + q)
        y_i = torch.where(t < tau, y_i - step, y_i)
    return y_i


@settings
class FedLin:
    """As FedSVRG with full local gradients; client i takes τ_i steps of size β/τ_i, from a range.

    β_i·τ_i is the same for all, so fast clients don't pull the fixed point: linear convergence to y* with all clients.
    Two communications per step with one cohort: down p + 2q, up 2q.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card("Mitra et al. 2021 (FedLin)", RECONSTRUCTED, Cost("2*T", "T*(p + 2*q)", "T*2*q"))

    steps: Count  # T
    local_steps: StepsPerClient  # τ_i
    step_size: StepSize  # β

    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        kernel = partial(unequal_steps, step_size=self.step_size(clients.now))
        tau = self.local_steps.of(clients)
        for _ in range(self.steps):
            cohort = clients.sample()
            q = clients.mean(grad_y_lower, cohort, x, y, draw=Draw("train", None))
            y = clients.mean(kernel, cohort, x, y, q, draw=(Draw("train", None, tau), tau))
        return y, kept
