"""The exact hypergradient at (x, y): the reference on problems small enough for it."""

from typing import ClassVar

from torch import Tensor

from fedmbo_ray.core.cards import STANDARD, Card, Cost
from fedmbo_ray.core.settings import Count, Positive, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.problems.oracles import grad_x_through, grad_y_upper, hessian_yy


@settings
class Exact:
    """∇_x f − ∇²_xy g v with ∇²_yy g v = ∇_y f solved by conjugate gradients over all clients and all their data."""

    card: ClassVar[Card] = Card(
        "textbook (conjugate gradients)",
        STANDARD,
        Cost("R + 2", "m/n*(p + q + (R + 1)*q)", "m/n*((R + 1)*q + p)"),
        participation="half",
    )

    batch_size: ClassVar[None] = None  # it takes all data

    tolerance: Positive = 1e-8  # of the residual, relative to ‖∇_y f‖
    iterations: Count = 1000  # at most

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor, kept: State) -> tuple[Tensor, State]:
        everyone, validation, train = clients.everyone(), Draw("validation", None), Draw("train", None)
        b = clients.mean(grad_y_upper, everyone, x, y, draw=validation)
        v, r = b * 0, b
        p, limit = r, self.tolerance * b.norm()
        for _ in range(self.iterations):
            if r.norm() <= limit:
                break
            Hp = clients.mean(hessian_yy, everyone, x, y, p, draw=train)
            a = r @ r / (p @ Hp)
            v, old, r = v + a * p, r, r - a * Hp
            p = r + (r @ r) / (old @ old) * p
        return clients.mean(grad_x_through, everyone, x, y, v, draw=(validation, train)), kept
