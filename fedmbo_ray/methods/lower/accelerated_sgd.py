"""Accelerated minibatch SGD: AC-SA of Ghadimi and Lan, as Woodworth et al. (2020) use it."""

from typing import ClassVar

from torch import Tensor

from fedmbo_ray.core.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.core.settings import Count, NonNegative, Positive, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.problems.oracles import grad_y_lower


@settings
class AcceleratedSGD:
    """T steps with momentum on minibatch gradients, a fresh cohort each; heterogeneity does not enter its bounds.

    a_t = 2/(t+1), γ_t = 4γ/(t(t+1)); one stage, without the restarts of the strongly convex schedule.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card("Woodworth, Patel, Srebro 2020", RECONSTRUCTED, Cost("T", "T*(p + q)", "T*q"))

    steps: Count  # T
    strong_convexity: NonNegative  # μ
    damping: Positive  # γ, at least 2ℓ
    batch_size: Count  # S

    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        mu, draw, average = self.strong_convexity, Draw("train", self.batch_size), y
        for t, cohort in enumerate(clients.ahead(self.steps), start=1):
            a, gamma = 2 / (t + 1), 4 * self.damping / (t * (t + 1))
            keep, follow = (1 - a) * (mu + gamma), a * ((1 - a) * mu + gamma)
            middle = (keep * average + follow * y) / (gamma + (1 - a**2) * mu)
            G = clients.mean(grad_y_lower, cohort, x, middle, draw=draw)
            y = (a * mu * middle + ((1 - a) * mu + gamma) * y - a * G) / (mu + gamma)
            average = a * y + (1 - a) * average
        return average, kept
