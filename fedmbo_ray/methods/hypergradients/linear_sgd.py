"""SGD on the linear system behind the hypergradient, from where the last round stopped (AmIGO)."""

from typing import ClassVar

import torch
from torch import Tensor

from fedmbo_ray.core.cards import CODE, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import Keeping, State
from fedmbo_ray.methods.schedules import StepSize
from fedmbo_ray.problems.oracles import grad_x_through, grad_y_through


@settings
class LinearSGD(Keeping):
    """h = mean_C[∇_x f_i − ∇²_xy g_i v] after Q steps v ← v − ρ mean_C[∇²_yy g_i v − ∇_y f_i] to v* = [∇²_yy g]⁻¹∇_y f.

    v is kept between rounds: as x and y move little, so does v*. A fresh cohort for each communication; no ℓ needed.
    """

    card: ClassVar[Card] = Card("Arbel, Mairal 2022 (AmIGO)", CODE, Cost("Q + 1", "(Q + 1)*(p + 2*q)", "Q*q + p"))

    steps: Count  # Q
    step_size: StepSize  # ρ
    batch_size: Count

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"v": torch.zeros_like(y)}

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor, kept: State) -> tuple[Tensor, State]:
        draw = (Draw("validation", self.batch_size), Draw("train", self.batch_size))
        v = kept["v"]
        for cohort in clients.ahead(self.steps):
            v = v + self.step_size(clients.now) * clients.mean(grad_y_through, cohort, x, y, v, draw=draw)
        return clients.mean(grad_x_through, clients.sample(), x, y, v, draw=draw), {"v": v}
