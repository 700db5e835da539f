"""Ordinary training, as if there were one level: what a bilevel method has to beat."""

from typing import Annotated, ClassVar

from annotated_types import Ge, Le
from torch import Tensor

from fedmbo_ray.core.cards import STANDARD, Card, Cost
from fedmbo_ray.core.settings import Count, NonNegative, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.problems.oracles import grads_pooled


@settings
class SingleLevel:
    """T times (x, y) ← (x, y) − (α, β)·mean_C (∇_x, ∇_y)[w·f_i + (1 − w)·g_i], a fresh cohort each time.

    Minibatch SGD on training and validation data at once; a baseline. It stops where w·f + (1 − w)·g is stationary,
    which in general is not where Φ is. With α = 0, x stays where it starts: for problems whose x is a hyperparameter,
    this is training with its first value. With β = 0, y stays: with w = 1, a minimax problem becomes plain
    minimisation over x.
    """

    card: ClassVar[Card] = Card(
        "ordinary training (minibatch SGD)",
        STANDARD,
        Cost("T", "T*(p + q)", "T*(p + q)"),
        heterogeneity="no",
        first_order=True,
    )

    step_size: NonNegative = 0.3  # α
    lower_step_size: NonNegative = 0.3  # β
    upper_weight: Annotated[float, Ge(0), Le(1)] = 0.2  # w, such as the share of validation rows
    steps: Count = 10  # T
    batch_size: Count = 32  # of each split

    def __post_init__(self) -> None:
        if self.step_size == self.lower_step_size == 0:
            raise ValueError("step_size or lower_step_size must be above 0, but both are 0, so that nothing would move")

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y}

    def round(self, clients: Clients, state: State) -> State:
        x, y = state["x"], state["y"]
        alpha, beta, kernel = self.step_size, self.lower_step_size, grads_pooled(self.upper_weight)
        draw = (Draw("validation", self.batch_size), Draw("train", self.batch_size))
        for _ in range(self.steps):
            d_x, d_y = clients.mean(kernel, clients.sample(), x, y, draw=draw)
            x, y = x - alpha * d_x, y - beta * d_y
        return {"x": x, "y": y}
