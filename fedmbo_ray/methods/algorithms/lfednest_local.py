"""LFedNest for clients with lower problems of their own: there, its local hypergradients are the right ones."""

from functools import partial
from typing import ClassVar

from torch import Tensor

from fedmbo_ray.core.cards import OURS, Card, Cost
from fedmbo_ray.core.settings import Count, Positive, settings
from fedmbo_ray.data.batches import Draw, Samples, unstack
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.algorithms.lfednest import local_x_steps
from fedmbo_ray.methods.base import State, for_each_client
from fedmbo_ray.methods.hypergradients.local_neumann import LocalDraws, local_draws
from fedmbo_ray.methods.schedules import Constant, StepSize
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import grad_y_lower


def own_round(
    problem: Problem,
    batches: tuple[Samples, *LocalDraws],
    x: Tensor,
    smoothness: Tensor,
    y: Tensor,
    steps: tuple[float, float],
) -> tuple[Tensor, Tensor]:
    """T steps y_i ← y_i − β∇_y g_i, then τ steps on x_i along the client's own hypergradients; y_i is kept."""
    below, validation, train, depths = batches
    for batch in unstack(below):
        y = y - steps[1] * grad_y_lower(problem, batch, x, y)
    return local_x_steps(problem, (validation, train, depths), x, y, smoothness, steps[0]), y


@settings
class LFedNestLocal:
    """T local steps on y_i, which never leaves client i; then τ local steps on x, averaged over a cohort.

    It minimises Φ(x) = mean_i f_i(x, y_i*(x)) with y_i*(x) = argmin_y g_i(x, y). The hypergradients of LFedNest, which
    are biased where clients share y, are each client's share of ∇Φ here: as N and T grow, their error vanishes.
    """

    card: ClassVar[Card] = Card(
        "this package, after Tarzanagh et al. 2022 (LFedNest)",
        OURS,
        Cost("1", "p + 1", "p"),
        heterogeneity="drift",
        personal=True,
    )

    steps: Count = 5  # T
    lower_step_size: StepSize = Constant(0.1)  # β
    step_size: StepSize = Constant(0.02)  # α
    local_steps: Count = 1  # τ
    terms: Count = 5  # N
    smoothness: Positive = 20.0  # ℓ
    batch_size: Count = 32

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": for_each_client(y, num_clients)}

    def round(self, clients: Clients, state: State) -> State:
        sizes = self.step_size(clients.now), self.lower_step_size(clients.now)
        above = local_draws(self.terms, self.batch_size, self.local_steps)
        draw = (Draw("train", self.batch_size, self.steps), *above)
        smoothness = state["x"].new_tensor(self.smoothness)
        kernel = partial(own_round, steps=sizes)
        x, y = clients.mean(kernel, clients.sample(), state["x"], smoothness, own=state["y"], draw=draw)
        return {"x": x, "y": y}
