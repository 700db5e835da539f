"""FedLin (Mitra et al. 2021): FedSVRG with full local gradients and unequal numbers of local steps."""

from functools import partial
from typing import Any, ClassVar

import torch
from pydantic import model_validator
from torch import Tensor

from fedmbo_ray.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.data import Draw, Trait
from fedmbo_ray.federation import Clients
from fedmbo_ray.oracles import grad_y_lower
from fedmbo_ray.registry import Count, settings
from fedmbo_ray.schedules import StepSize


def local_steps(
    problem: Any, batches: Any, x: Tensor, y: Tensor, q: Tensor, step_size: float, fewest: int, most: int
) -> Tensor:
    """τ_i steps of size β/τ_i along ∇_y g_i(x, y_i) − ∇_y g_i(x, y) + q; a slot that is done waits."""
    batch, tau = batches[0], batches[1] + fewest
    y_i, anchor = y, grad_y_lower(problem, batch, x, y)
    for t in range(most):
        step = (step_size / tau) * (grad_y_lower(problem, batch, x, y_i) - anchor + q)
        y_i = torch.where(t < tau, y_i - step, y_i)
    return y_i


@settings
class FedLin:
    """As FedSVRG with full local gradients; client i takes τ_i steps of size β/τ_i, from a range.

    β_i·τ_i is the same for all, so fast clients don't pull the fixed point: it converges linearly to y*.
    Two communications per step with one cohort: down p + 2q, up 2q.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card("Mitra et al. 2021 (FedLin)", RECONSTRUCTED, Cost("2*T", "T*(p + 2*q)", "T*2*q"))

    steps: Count  # T
    local_steps: Count  # the most a client takes
    fewest_local_steps: Count  # the fewest
    step_size: StepSize  # β

    @model_validator(mode="after")
    def _range(self) -> "FedLin":
        if self.fewest_local_steps > self.local_steps:
            raise ValueError(
                "`fewest_local_steps <= local_steps` must hold, "
                f"but got {self.fewest_local_steps} and {self.local_steps}"
            )
        return self

    def solve(self, clients: Clients, x: Tensor, y: Tensor) -> Tensor:
        fewest, most = self.fewest_local_steps, self.local_steps
        kernel = partial(local_steps, step_size=self.step_size(clients), fewest=fewest, most=most)
        draw = (Draw("train", None), Trait(most - fewest + 1))
        for _ in range(self.steps):
            cohort = clients.sample()
            q = clients.mean(grad_y_lower, cohort, x, y, draw=Draw("train", None))
            y = clients.mean(kernel, cohort, x, y, q, draw=draw)
        return y
