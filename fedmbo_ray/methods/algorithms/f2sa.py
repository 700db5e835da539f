"""F2SA (Kwon et al. 2023): a penalty with a growing multiplier, first derivatives only."""

from typing import ClassVar

import torch
from torch import Tensor

from fedmbo_ray.core.cards import CODE, Card, Cost
from fedmbo_ray.core.settings import Count, Positive, settings
from fedmbo_ray.data.batches import Draw, Samples
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.methods.schedules import Decay, StepSize
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import Pair, grad_x_upper, grad_y_lower, grad_y_upper, grads_lower


def lower_directions(
    problem: Problem, batch: tuple[Samples, Samples, Samples], x: Tensor, y: Tensor, z: Tensor, multiplier: Tensor
) -> tuple[Tensor, Tensor]:
    """∇_y g_i(x, y), and ∇_y f_i(x, z) + λ∇_y g_i(x, z), on independent batches."""
    validation, first, second = batch
    penalised = grad_y_upper(problem, validation, x, z) + multiplier * grad_y_lower(problem, second, x, z)
    return grad_y_lower(problem, first, x, y), penalised


def upper_direction(problem: Problem, batch: Pair, x: Tensor, y: Tensor, z: Tensor, multiplier: Tensor) -> Tensor:
    """∇_x f_i(x, z) + λ(∇_x g_i(x, z) − ∇_x g_i(x, y)), both ∇_x g_i on one batch."""
    validation, train = batch
    g_x = grads_lower(problem, train, x, z)[0] - grads_lower(problem, train, x, y)[0]
    return grad_x_upper(problem, validation, x, z) + multiplier * g_x


@settings
class F2SA:
    """T times y ← y − γ mean_C ∇_y g_i(x, y), z ← z − β mean_C[∇_y f_i + λ∇_y g_i](x, z);  then
    x ← x − α mean_C[∇_x f_i(x, z) + λ(∇_x g_i(x, z) − ∇_x g_i(x, y))];  λ ← λ + δ.

    At (y, z) = (argmin g, argmin f + λg) the direction is ∇Φ up to O(1/λ). One client is the paper's setting;
    with more, every oracle is a mean over a cohort. β must stay below 1/(λℓ).
    """

    card: ClassVar[Card] = Card(
        "Kwon, Kwon, Wright, Nowak 2023 (F2SA)",
        CODE,
        Cost("T + 1", "(T + 1)*(p + 2*q + 1)", "T*2*q + p"),
        first_order=True,
    )

    step_size: StepSize = Decay(initial=0.02, power=4 / 7, offset=100.0)  # α
    lower_step_size: StepSize = Decay(initial=0.1, power=4 / 7, offset=100.0)  # γ
    penalty_step_size: StepSize = Decay(initial=0.02, power=5 / 7, offset=100.0)  # β
    growth: StepSize = Decay(initial=0.001, power=1 / 7, offset=100.0)  # δ
    steps: Count = 5  # T
    multiplier: Positive = 5.0  # λ at first
    batch_size: Count = 32

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y, "z": y, "multiplier": torch.tensor(self.multiplier, dtype=y.dtype)}

    def round(self, clients: Clients, state: State) -> State:
        x, y, z, multiplier = (state[name] for name in ("x", "y", "z", "multiplier"))
        validation, train = Draw("validation", self.batch_size), Draw("train", self.batch_size)
        gamma, beta = self.lower_step_size(clients.now), self.penalty_step_size(clients.now)
        for _ in range(self.steps):
            draw = (validation, train, train)
            d_y, d_z = clients.mean(lower_directions, clients.sample(), x, y, z, multiplier, draw=draw)
            y, z = y - gamma * d_y, z - beta * d_z
        h = clients.mean(upper_direction, clients.sample(), x, y, z, multiplier, draw=(validation, train))
        multiplier = multiplier + self.growth(clients.now)
        return {"x": x - self.step_size(clients.now) * h, "y": y, "z": z, "multiplier": multiplier}
