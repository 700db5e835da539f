"""Template of a hypergradient estimator: ``estimate(clients, x, y, smoothness, kept)`` returns h and what to keep."""

from typing import ClassVar

from torch import Tensor

from fedmbo_ray import Card, Clients, Cost, Count, Draw, State, oracles, settings


@settings
class OneTerm:
    """h = mean_C[∇_x f_i − ∇²_xy g_i v] with v = mean_C ∇_y f_i/ℓ: a Neumann series of one term."""

    card: ClassVar[Card] = Card("textbook", "ours", Cost("2", "p + q + p + 2*q", "q + p"))

    batch_size: Count  # every estimator has it: `smoothness: auto` measures ℓ on batches of this size

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor, kept: State) -> tuple[Tensor, State]:
        validation, train = Draw("validation", self.batch_size), Draw("train", self.batch_size)
        v = clients.mean(oracles.grad_y_upper, clients.sample(), x, y, draw=validation) / smoothness
        return clients.mean(oracles.grad_x_through, clients.sample(), x, y, v, draw=(validation, train)), kept
