"""SCAFFOLD (Karimireddy et al. 2020) on the lower problem."""

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from fedmbo_ray.core.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.core.settings import Count, Positive, settings
from fedmbo_ray.data.batches import Draw, Samples, unstack
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import Keeping, State
from fedmbo_ray.methods.schedules import StepSize
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import grad_y_lower


def corrected_steps(
    problem: Problem, batches: Samples, x: Tensor, y: Tensor, c: Tensor, c_i: Tensor, step_size: float
) -> tuple[Tensor, ...]:
    """τ steps along ∇_y g_i − c_i + c; uploads y_i − y and c_i⁺ − c_i, keeps c_i⁺ = c_i − c + (y − y_i)/(τβ)."""
    y_i, steps = y, list(unstack(batches))
    for batch in steps:
        y_i = y_i - step_size * (grad_y_lower(problem, batch, x, y_i) - c_i + c)
    new = c_i - c + (y - y_i) / (len(steps) * step_size)
    return y_i - y, new - c_i, new


@settings
class Scaffold(Keeping):
    """y ← y + β_s mean_{i∈C}(y_i − y);  c ← c + (1/m) Σ_{i∈C}(c_i⁺ − c_i). One communication per step.

    The control variates c_i estimate ∇_y g_i (option II) and take the clients' drift out of FedAvg. They are
    kept when x moves: stale by O(‖x^{k+1} − x^k‖), they are a better start than zero.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card("Karimireddy et al. 2020 (SCAFFOLD)", RECONSTRUCTED, Cost("T", "T*(p + 2*q)", "T*2*q"))

    steps: Count  # T
    local_steps: Count  # τ
    step_size: StepSize  # β
    batch_size: Count  # S
    server_step_size: Positive = 1.0  # β_s

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"c": torch.zeros_like(y), "c_i": y.new_zeros(num_clients, len(y))}

    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        kernel = partial(corrected_steps, step_size=self.step_size(clients.now))
        draw = Draw("train", self.batch_size, count=self.local_steps)
        c, c_i = kept["c"], kept["c_i"]
        for _ in range(self.steps):
            move, _, new = clients.mean(kernel, clients.sample(), x, y, c, own=c_i, draw=draw)
            y = y + self.server_step_size * move
            c, c_i = c + (new - c_i).mean(0), new
        return y, {"c": c, "c_i": c_i}
