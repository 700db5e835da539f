"""FedBiO and FedBiOAcc for clients with lower problems of their own (Li, Huang, Huang 2023)."""

from functools import partial
from typing import ClassVar

from torch import Tensor

from fedmbo_ray.core.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.core.settings import settings
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.algorithms.fedbio import FedBiO, FedBiOAcc, pairs
from fedmbo_ray.methods.algorithms.point import directions
from fedmbo_ray.methods.base import State, for_each_client
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import Kernel, Pair, Vectors


@settings
class FedBiOLocal(FedBiO):
    """FedBiO's τ local steps, after which x_i alone is averaged: y_i and v_i never leave client i.

    It minimises Φ(x) = mean_i f_i(x, y_i*(x)) with y_i*(x) = argmin_y g_i(x, y). There, the hypergradient is the mean
    of the clients' own, ∇_x f_i − ∇²_xy g_i [∇²_yy g_i]⁻¹ ∇_y f_i, so that only the local steps on x drift apart.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card(
        "Li, Huang, Huang 2023 (FedBiO, local lower problems)",
        RECONSTRUCTED,
        Cost("1", "p", "p"),
        participation="full",
        heterogeneity="drift",
        personal=True,
    )

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": for_each_client(y, num_clients), "v": for_each_client(0 * y, num_clients)}

    def round(self, clients: Clients, state: State) -> State:
        own = (state["y"], state["v"])
        x, y, v = clients.mean(self.kernel(clients.now), clients.everyone(), state["x"], own=own, draw=self.draw)
        return {"x": x, "y": y, "v": v}


def x_first(problem: Problem, batches: Pair, x: Tensor, d_x: Tensor, *own: Tensor, steps: Kernel) -> Vectors:
    """Local steps whose arguments and results begin with what is shared, x and its momentum."""
    y, v, d_y, d_v = own
    x, y, v, d_x, d_y, d_v = steps(problem, batches, x, y, v, d_x, d_y, d_v)
    return x, d_x, y, v, d_y, d_v


def first_momenta(problem: Problem, batch: Pair, x: Tensor, y: Tensor, v: Tensor, d_y: Tensor, d_v: Tensor) -> Vectors:
    """The direction of x to upload; then what the client keeps: y and v as they are, and the momenta of both."""
    d_x, d_y, d_v = directions(problem, batch, x, y, v)
    return d_x, y, v, d_y, d_v


@settings
class FedBiOAccLocal(FedBiOAcc):
    """FedBiOAcc's τ local steps, after which x_i and its momentum alone are averaged; the rest never leaves client i.

    Minimises mean_i f_i(x, y_i*(x)), see `fedbio_local`. The first round has one more communication, for the momenta
    to start with.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card(
        "Li, Huang, Huang 2023 (FedBiOAcc, local lower problems)",
        RECONSTRUCTED,
        Cost("1", "2*p", "2*p"),
        participation="full",
        heterogeneity="drift",
        personal=True,
    )

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        point = {"x": x, "y": for_each_client(y, num_clients), "v": for_each_client(0 * y, num_clients)}
        return point | {f"d_{name}": 0 * value for name, value in point.items()}

    def round(self, clients: Clients, state: State) -> State:
        x, d_x, *own = (state[name] for name in ("x", "d_x", "y", "v", "d_y", "d_v"))
        everyone = clients.everyone()
        if clients.round == 0:
            d_x, *own = clients.mean(first_momenta, everyone, x, own=own, draw=pairs(self.batch_size))
        kernel = partial(x_first, steps=self.kernel(clients.now))
        x, d_x, y, v, d_y, d_v = clients.mean(kernel, everyone, x, d_x, own=own, draw=self.draw)
        return {"x": x, "y": y, "v": v, "d_x": d_x, "d_y": d_y, "d_v": d_v}
