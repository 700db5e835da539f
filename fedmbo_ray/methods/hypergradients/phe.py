"""PHE, the parallel hypergradient estimator of FedMBO (Algorithm 2)."""

from typing import ClassVar

from torch import Tensor

from fedmbo_ray.core.cards import PAPER, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.federation.relay import Leg
from fedmbo_ray.methods.base import State
from fedmbo_ray.problems.oracles import grad_x_through, grad_y_upper, hessian_yy


def first(g: Tensor, N: Tensor, l: Tensor) -> Tensor:
    """p_i = (N/ℓ) ∇_y f."""
    return N / l * g


def following(Hp: Tensor, N: Tensor, l: Tensor, p: Tensor) -> Tensor:
    """p_i ← p_i − (1/ℓ) ∇²_yy g p_i."""
    return p - Hp / l


@settings
class PHE:
    """h = mean_i [∇_x f − ∇²_xy g · p_i],  p_i = (N/ℓ) Π_{l=1}^{N_i} (I − ∇²_yy g/ℓ) ∇_y f,  N_i ~ U{0, …, N−1}.

    Every column i meets a new client in every communication, so that the expectation of the product is
    the product of the means: E h = ∇_x f − ∇²_xy g · (1/ℓ)Σ_{j<N}(I − ∇²_yy g/ℓ)^j ∇_y f, and columns are
    independent, so that Var h = O(1/n). It takes 2 + max_i N_i communications.

    Departures from the listing: line 4 means ∇_x f, not ∇_y f; and ∇_x f is left to the last client of a
    column instead of the first, which keeps the mean and saves p floats upstream. Where dropped clients
    are omitted rather than resampled their columns are lost, deep ones more often: that biases h.
    """

    card: ClassVar[Card] = Card(
        "Huang, Zhang, Ji 2023 (FedMBO)",
        PAPER,
        Cost("2 + D_max", "p + q + (1 + D_mean)*(p + 2*q)", "(1 + D_mean)*q + p"),
        relay=True,
    )

    terms: Count  # N
    batch_size: Count

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor, kept: State) -> tuple[Tensor, State]:
        validation, train = Draw("validation", self.batch_size), Draw("train", self.batch_size)
        cohort = clients.sample()
        depth = clients.rng.integers(self.terms, size=len(cohort))  # N_i
        start, step = Leg(grad_y_upper, validation, first), Leg(hessian_yy, train, following)
        finish = Leg(grad_x_through, (validation, train))
        return clients.relay(cohort, depth, start, step, finish, x, y, (self.terms, smoothness)), kept
