"""Template of a hypergradient estimator: a class with ``estimate(clients, x, y, smoothness)``, which returns h."""

from typing import ClassVar

from torch import Tensor

from fedmbo_ray.cards import OURS, Card, Cost
from fedmbo_ray.data import Draw
from fedmbo_ray.federation import Clients
from fedmbo_ray.oracles import grad_x_through, grad_y_upper
from fedmbo_ray.registry import Count, settings


@settings
class OneTerm:
    """h = mean_C[∇_x f_i − ∇²_xy g_i v] with v = mean_C ∇_y f_i/ℓ: a Neumann series of one term."""

    card: ClassVar[Card] = Card("textbook", OURS, Cost("2", "p + q + p + 2*q", "q + p"))

    batch_size: Count

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor) -> Tensor:
        validation, train = Draw("validation", self.batch_size), Draw("train", self.batch_size)
        v = clients.mean(grad_y_upper, clients.sample(), x, y, draw=validation) / smoothness
        return clients.mean(grad_x_through, clients.sample(), x, y, v, draw=(validation, train))
