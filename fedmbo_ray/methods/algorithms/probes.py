"""What an estimator or a lower solver does at one point, again and again: its mean and its variance, not a method."""

from typing import ClassVar

import torch
from torch import Tensor

from fedmbo_ray.core.cards import OURS, Card
from fedmbo_ray.core.settings import settings
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import Reporting, State, kept_at_first
from fedmbo_ray.methods.curvature import NeumannScale, PowerIteration, unmeasured
from fedmbo_ray.methods.hypergradients import Hypergradient
from fedmbo_ray.methods.hypergradients.phe import PHE
from fedmbo_ray.methods.lower import Lower
from fedmbo_ray.methods.lower.minibatch_sgd import MinibatchSGD
from fedmbo_ray.methods.schedules import Constant

MOST_SHOWN = 16  # coordinates of a mean that are recorded one by one


@settings
class HypergradientDraws(Reporting):
    """h^k = hypergradient(x⁰, y⁰), in every round a fresh draw; neither x nor y moves.

    Records the mean of the draws so far (coordinate by coordinate where there are few) and their variance.
    """

    card: ClassVar[Card] = Card("this package", OURS, PHE.card.cost)

    hypergradient: Hypergradient = PHE(terms=5, batch_size=32)
    smoothness: NeumannScale = PowerIteration()  # ℓ

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y, "smoothness": unmeasured(y), **no_draws(x)}

    def round(self, clients: Clients, state: State) -> State:
        x, y = state["x"], state["y"]
        smoothness = self.smoothness(clients, x, y, state["smoothness"], self.hypergradient.batch_size)
        kept = kept_at_first(self.hypergradient, x, y, clients.num_clients)
        h, _ = self.hypergradient.estimate(clients, x, y, smoothness, kept)
        return {"x": x, "y": y, "smoothness": smoothness, **one_more(state, h, clients.round)}

    def figures(self, state: State, rounds: int) -> dict[str, float]:
        shown = state["mean"].tolist() if len(state["mean"]) <= MOST_SHOWN else []
        return {
            "estimate_variance": variance(state, rounds),
            **{f"estimate_{i}": h for i, h in enumerate(shown)},
        }


@settings
class LowerDraws(Reporting):
    """lower(x⁰, y⁰) − y⁰, in every round a fresh draw; neither x nor y moves. Records the mean of its square.

    On the quadratic y⁰ is y*(x⁰), so that this is the error that one call of the solver makes.
    """

    card: ClassVar[Card] = Card("this package", OURS, MinibatchSGD.card.cost)

    lower: Lower = MinibatchSGD(steps=1, step_size=Constant(0.5), batch_size=32)

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y, **no_draws(y)}

    def round(self, clients: Clients, state: State) -> State:
        x, y = state["x"], state["y"]
        solved, _ = self.lower.solve(clients, x, y, kept_at_first(self.lower, x, y, clients.num_clients))
        return {"x": x, "y": y, **one_more(state, solved - y, clients.round)}

    def figures(self, state: State, rounds: int) -> dict[str, float]:
        mean_sq = float(state["mean"].square().sum())
        return {"lower_move_sq": mean_sq + variance(state, rounds) * (1 - 1 / max(rounds, 1))}


def no_draws(like: Tensor) -> State:
    return {"mean": torch.zeros_like(like), "scatter": torch.zeros((), dtype=like.dtype)}


def one_more(state: State, draw: Tensor, before: int) -> State:
    """Mean and Σ‖draw − mean‖² with one more draw than `before` (Welford)."""
    mean = state["mean"] + (draw - state["mean"]) / (before + 1)
    return {"mean": mean, "scatter": state["scatter"] + (draw - state["mean"]) @ (draw - mean)}


def variance(state: State, rounds: int) -> float:
    return float(state["scatter"]) / (rounds - 1) if rounds > 1 else float("nan")
