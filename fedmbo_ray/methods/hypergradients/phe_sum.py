"""PHE with the whole Neumann sum in every column: the mean of PHE, several times less variance."""

from typing import ClassVar

from torch import Tensor

from fedmbo_ray.core.cards import OURS, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.problems.oracles import grad_x_through, grad_y_upper, hessian_yy


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
        p = clients.map(grad_y_upper, clients.sample(), x, y, draw=validation) / smoothness
        v = p
        for _ in range(1, self.terms):
            cohort = clients.sample(len(p))
            p, v = p[: len(cohort)], v[: len(cohort)]
            p = p - clients.map(hessian_yy, cohort, x, y, each=p, draw=train) / smoothness
            v = v + p
        cohort = clients.sample(len(v))
        return clients.mean(grad_x_through, cohort, x, y, each=v[: len(cohort)], draw=(validation, train)), kept
