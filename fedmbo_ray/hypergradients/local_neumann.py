"""Fully local hypergradients, as LFedNest has them: one communication, and a bias that no N removes."""

from functools import partial
from typing import Any

from torch import Tensor

from fedmbo_ray.data import Draw, unstack
from fedmbo_ray.federation import Clients
from fedmbo_ray.oracles import grad_x_through, grad_y_upper, hessian_yy
from fedmbo_ray.registry import Count, settings


def local_hypergradient(problem: Any, batch: Any, x: Tensor, y: Tensor, smoothness: Tensor, terms: int) -> Tensor:
    """∇_x f_i − ∇²_xy g_i v_i with client i's own v_i = (1/ℓ) Σ_{j<N} (I − ∇²_yy g_i/ℓ)^j ∇_y f_i."""
    validation, *train = batch[0], *unstack(batch[1])
    p = grad_y_upper(problem, validation, x, y) / smoothness
    v = p
    for each in train[1:]:
        p = p - hessian_yy(problem, each, x, y, p) / smoothness
        v = v + p
    return grad_x_through(problem, (validation, train[0]), x, y, v)


@settings
class LocalNeumann:
    """h = mean_{i∈C} [∇_x f_i − ∇²_xy g_i v_i], v_i ≈ [∇²_yy g_i]⁻¹ ∇_y f_i of each client by itself.

    Biased under heterogeneity by mean_i J_i H_i⁻¹ ∇_y f_i − J̄ H̄⁻¹ ∇_y f̄, for every N.
    """

    terms: Count  # N
    batch_size: Count

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor) -> Tensor:
        kernel = partial(local_hypergradient, terms=self.terms)
        draw = (Draw("validation", self.batch_size), Draw("train", self.batch_size, count=self.terms))
        return clients.mean(kernel, clients.sample(), x, y, smoothness, draw=draw)
