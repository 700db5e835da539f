"""IHGP, the hypergradient estimator of FedNest."""

from typing import ClassVar

from torch import Tensor

from fedmbo_ray.core.cards import PAPER, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.problems.oracles import grad_x_through, grad_y_upper, hessian_yy


@settings
class IHGP:
    """p = (N/ℓ) Π_{l=1}^{N'} (I − mean_{C_l} ∇²_yy g_i/ℓ) mean_{C_0} ∇_y f_i,  h = mean_C [∇_x f_i − ∇²_xy g_i p].

    One vector p and one random depth N' ~ U{0, …, N−1} are shared by all clients: the variance of h has a
    part that no number of clients averages out, Var_{N'}(J̄ (N/ℓ)(I − H̄/ℓ)^{N'} ∇_y f). That is what PHE's own depth
    per column removes. Takes 2 + N' communications, with a fresh cohort each.
    """

    card: ClassVar[Card] = Card(
        "Tarzanagh et al. 2022 (FedNest), as restated in FedMBO's",
        PAPER,
        Cost("2 + D", "p + q + (1 + D)*(p + 2*q)", "(1 + D)*q + p"),
    )

    terms: Count  # N
    batch_size: Count

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor, kept: State) -> tuple[Tensor, State]:
        validation, train = Draw("validation", self.batch_size), Draw("train", self.batch_size)
        depth = int(clients.rng.integers(self.terms))  # N'
        p = self.terms / smoothness * clients.mean(grad_y_upper, clients.sample(), x, y, draw=validation)
        for cohort in clients.ahead(depth):
            p = p - clients.mean(hessian_yy, cohort, x, y, p, draw=train) / smoothness
        return clients.mean(grad_x_through, clients.sample(), x, y, p, draw=(validation, train)), kept
