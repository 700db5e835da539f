"""PHE with the whole Neumann sum in every column: the mean of PHE, several times less variance."""

from typing import ClassVar

import numpy as np
from torch import Tensor

from fedmbo_ray.core.cards import OURS, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.federation.relay import Leg
from fedmbo_ray.methods.base import State
from fedmbo_ray.problems.oracles import grad_x_through, grad_y_upper, hessian_yy


def first(g: Tensor, l: Tensor) -> tuple[Tensor, Tensor]:
    """p_i = v_i = (1/ℓ) ∇_y f."""
    return g / l, g / l


def following(Hp: Tensor, l: Tensor, p: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """p_i ← p_i − (1/ℓ) ∇²_yy g p_i,  v_i ← v_i + p_i."""
    p = p - Hp / l
    return p, v + p


@settings
class PHESum:
    """h = mean_i [∇_x f − ∇²_xy g · v_i],  v_i = (1/ℓ) Σ_{j<N} Π_{l=1}^{j} (I − ∇²_yy g/ℓ) ∇_y f.

    Not in the paper. A random depth is drawn no more, so the factor N and with it a variance that grows
    with N are gone. It takes N + 1 communications; PHE's 2 + max_i N_i are hardly fewer once n ≥ 10.
    """

    card: ClassVar[Card] = Card("this package", OURS, Cost("N + 1", "p + q + N*(p + 2*q)", "N*q + p"), relay=True)

    terms: Count  # N
    batch_size: Count

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor, kept: State) -> tuple[Tensor, State]:
        validation, train = Draw("validation", self.batch_size), Draw("train", self.batch_size)
        cohort = clients.sample()
        steps = np.full(len(cohort), self.terms - 1)
        start, step = Leg(grad_y_upper, validation, first), Leg(hessian_yy, train, following)
        finish = Leg(grad_x_through, (validation, train))
        return clients.relay(cohort, steps, start, step, finish, x, y, (smoothness,)), kept
