"""AggITD (Xiao, Ji 2023): the hypergradient is built while the lower problem is being solved."""

from typing import ClassVar

import torch
from torch import Tensor

from fedmbo_ray.core.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.methods.curvature import NeumannScale, PowerIteration, unmeasured
from fedmbo_ray.methods.schedules import Constant, StepSize
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import Pair, grad_x_through, grad_y_lower, grad_y_upper, hessian_yy


def both_gradients(problem: Problem, batch: Pair, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """∇_y g_i and ∇_y f_i at (x, y)."""
    validation, train = batch
    return grad_y_lower(problem, train, x, y), grad_y_upper(problem, validation, x, y)


def gradient_and_product(problem: Problem, batch: Pair, x: Tensor, y: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """∇_y g_i and ∇²_yy g_i r at (x, y), on independent batches."""
    first, second = batch
    return grad_y_lower(problem, first, x, y), hessian_yy(problem, second, x, y, r)


@settings
class AggITD:
    """N steps y^{t+1} = y^t − β mean_C ∇_y g_i;  r = (N/ℓ) mean_C ∇_y f_i(x, y^Q) at a random t = Q < N;  after it,
    r ← r − mean_C ∇²_yy g_i(x, y^t) r/ℓ in the same communications;  x ← x − α mean_C[∇_x f_i − ∇²_xy g_i r].

    N + 1 communications where FedMBO needs T + 2 + max N_i. Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card(
        "Xiao, Ji 2023 (AggITD)",
        RECONSTRUCTED,
        Cost("N + 1", "N*(p + q) + D*q + p + 2*q", "(N + D + 1)*q + p"),
    )

    step_size: StepSize = Constant(0.05)  # α
    lower_step_size: StepSize = Constant(0.3)  # β
    terms: Count = 5  # N, steps on y, too
    batch_size: Count = 32
    smoothness: NeumannScale = PowerIteration()  # ℓ

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y, "smoothness": unmeasured(y)}

    def round(self, clients: Clients, state: State) -> State:
        x, y = state["x"], state["y"]
        smoothness = self.smoothness(clients, x, y, state["smoothness"], self.batch_size)
        validation, train = Draw("validation", self.batch_size), Draw("train", self.batch_size)
        beta, Q, r = self.lower_step_size(clients.now), int(clients.rng.integers(self.terms)), torch.zeros_like(y)
        for t in range(self.terms):
            cohort = clients.sample()
            if t < Q:
                G = clients.mean(grad_y_lower, cohort, x, y, draw=train)
            elif t == Q:
                G, f_y = clients.mean(both_gradients, cohort, x, y, draw=(validation, train))
                r = self.terms / smoothness * f_y
            else:
                G, Hr = clients.mean(gradient_and_product, cohort, x, y, r, draw=(train, train))
                r = r - Hr / smoothness
            y = y - beta * G
        h = clients.mean(grad_x_through, clients.sample(), x, y, r, draw=(validation, train))
        return {"x": x - self.step_size(clients.now) * h, "y": y, "smoothness": smoothness}
