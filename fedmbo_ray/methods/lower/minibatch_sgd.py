"""Minibatch SGD: the inner loop of FedMBO (Algorithm 1, lines 3–13)."""

from typing import ClassVar

from torch import Tensor

from fedmbo_ray.core.cards import PAPER, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.methods.schedules import StepSize
from fedmbo_ray.problems.oracles import grad_y_lower


@settings
class MinibatchSGD:
    """y^{t+1} = y^t − β · mean_{i∈C^t} ∇_y g_i(x, y^t; ζ_i), a fresh cohort for every t. One communication each.

    One step from y* leaves E‖y − y*‖² = β²(σ_{g,1}²/S + σ_g²)/n: a larger batch S does not average out
    what clients differ by (the paper's inner lemma divides σ_g² by S, too).
    """

    card: ClassVar[Card] = Card("Huang, Zhang, Ji 2023 (FedMBO)", PAPER, Cost("T", "T*(p + q)", "T*q"))

    steps: Count  # T
    step_size: StepSize  # β
    batch_size: Count  # S

    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        beta, draw = self.step_size(clients.now), Draw("train", self.batch_size)
        for cohort in clients.ahead(self.steps):
            G = clients.mean(grad_y_lower, cohort, x, y, draw=draw)
            y = y - beta * G
        return y, kept
