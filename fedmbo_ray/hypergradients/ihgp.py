"""IHGP, the hypergradient estimator of FedNest."""

from typing import Literal

from torch import Tensor

from fedmbo_ray.data import Draw
from fedmbo_ray.federation import Clients
from fedmbo_ray.oracles import grad_x_through, grad_y_upper, hessian_yy
from fedmbo_ray.registry import Count, settings


@settings
class IHGP:
    """p = (N/ℓ) Π_{l=1}^{N'} (I − mean_{C_l} ∇²_yy g_i/ℓ) mean_{C_0} ∇_y f_i,  h = mean_C [∇_x f_i − ∇²_xy g_i p].

    One vector p and one random depth N' ~ U{0, …, N−1} are shared by all clients: the variance of h has a
    part that no number of clients averages out, Var_{N'}(J̄ (N/ℓ)(I − H̄/ℓ)^{N'} ∇_y f). That is what PHE's own depth
    per column removes. Takes 2 + N' communications, with a fresh cohort each or one fixed cohort for all
    (FedNest's code), which is told x and y once.
    """

    terms: Count  # N
    batch_size: Count
    cohort: Literal["fresh", "fixed"] = "fresh"

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor) -> Tensor:
        validation, train = Draw("validation", self.batch_size), Draw("train", self.batch_size)
        fixed = clients.sample() if self.cohort == "fixed" else None
        depth = int(clients.rng.integers(self.terms))  # N'
        fy = clients.mean(grad_y_upper, clients.sample() if fixed is None else fixed, x, y, draw=validation)
        p = self.terms / smoothness * fy
        for _ in range(depth):
            cohort = clients.sample() if fixed is None else fixed
            p = p - clients.mean(hessian_yy, cohort, x, y, p, draw=train) / smoothness
        cohort = clients.sample() if fixed is None else fixed
        return clients.mean(grad_x_through, cohort, x, y, p, draw=(validation, train))
