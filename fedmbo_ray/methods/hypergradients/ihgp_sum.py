"""IHGP with the whole Neumann sum instead of one random term: no variance floor, linear speed-up."""

from typing import ClassVar

from torch import Tensor

from fedmbo_ray.core.cards import OURS, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.problems.oracles import grad_x_through, grad_y_upper, hessian_yy


@settings
class IHGPSum:
    """h = mean_C [∇_x f_i − ∇²_xy g_i v],  v = (1/ℓ) Σ_{j<N} Π_{l≤j} (I − mean_{C_l} ∇²_yy g_i/ℓ) mean_{C_0} ∇_y f_i.

    The mean of IHGP without its random depth, and so without the part of its variance that clients can't
    average out. A fresh cohort for each of its N + 1 communications.
    """

    card: ClassVar[Card] = Card("this package", OURS, Cost("N + 1", "p + q + N*(p + 2*q)", "N*q + p"))

    terms: Count  # N
    batch_size: Count

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor, kept: State) -> tuple[Tensor, State]:
        validation, train = Draw("validation", self.batch_size), Draw("train", self.batch_size)
        p = clients.mean(grad_y_upper, clients.sample(), x, y, draw=validation) / smoothness
        v = p
        for cohort in clients.ahead(self.terms - 1):
            p = p - clients.mean(hessian_yy, cohort, x, y, p, draw=train) / smoothness
            v = v + p
        return clients.mean(grad_x_through, clients.sample(), x, y, v, draw=(validation, train)), kept
