"""The direct gradient alone: an ablation."""

from typing import ClassVar

from torch import Tensor

from fedmbo_ray.core.cards import STANDARD, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.problems.oracles import grad_x_upper


@settings
class Direct:
    """h = mean_C ∇_x f_i: the hypergradient without its implicit term, as if y did not depend on x.

    An ablation, which shows what the implicit term does. It is right for minimax problems, g = −f, where ∇_y f = 0 at
    y*(x); elsewhere it is biased, and on problems whose upper loss does not depend on x it is 0.
    """

    card: ClassVar[Card] = Card("alternating gradient descent", STANDARD, Cost("1", "p + q", "p"), heterogeneity="no")

    batch_size: Count

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor, kept: State) -> tuple[Tensor, State]:
        draw = Draw("validation", self.batch_size)
        return clients.mean(grad_x_upper, clients.sample(), x, y, draw=draw), kept
