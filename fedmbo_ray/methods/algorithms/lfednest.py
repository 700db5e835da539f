"""LFedNest and LFedNest_SVRG (Tarzanagh et al. 2022): FedNest with fully local hypergradients."""

from functools import partial
from typing import ClassVar

from torch import Tensor

from fedmbo_ray.core.cards import CODE, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.methods.curvature import NeumannScale, PowerIteration, unmeasured
from fedmbo_ray.methods.hypergradients.local_neumann import LocalDraws, local_draws, local_hypergradient, local_samples
from fedmbo_ray.methods.lower.fedavg import FedAvg
from fedmbo_ray.methods.lower.fedsvrg import FedSVRG
from fedmbo_ray.methods.schedules import Constant, StepSize
from fedmbo_ray.problems.base import Problem


def local_x_steps(
    problem: Problem, batches: LocalDraws, x: Tensor, y: Tensor, smoothness: Tensor, step_size: float
) -> Tensor:
    """x_i ← x_i − α(∇_x f_i − ∇²_xy g_i v_i), v_i by client i's own Neumann sum at (x_i, y)."""
    for samples in local_samples(batches):
        x = x - step_size * local_hypergradient(problem, samples, x, y, smoothness, "sum")
    return x


@settings
class LFedNest:
    """T × FedAvg on y; then τ local steps on x along local hypergradients, averaged over a cohort.

    Few communications, and a bias: it stops where mean_i[∇_x f_i − J_i H_i⁻¹∇_y f_i] = 0, not where ∇Φ = 0.
    """

    card: ClassVar[Card] = Card(
        "Tarzanagh et al. 2022 (LFedNest)",
        CODE,
        Cost("T + 1", "(T + 1)*(p + q) + 1", "T*q + p"),
        heterogeneity="no",
    )

    lower: FedAvg = FedAvg(steps=1, local_steps=5, step_size=Constant(0.05), batch_size=32)
    step_size: StepSize = Constant(0.005)  # α
    local_steps: Count = 1  # τ
    terms: Count = 5  # N
    batch_size: Count = 32
    smoothness: NeumannScale = PowerIteration(every=5)  # ℓ

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y, "smoothness": unmeasured(y)}

    def round(self, clients: Clients, state: State) -> State:
        x, y = state["x"], state["y"]
        y, _ = self.lower.solve(clients, x, y, {})
        smoothness = self.smoothness(clients, x, y, state["smoothness"], self.batch_size)
        kernel = partial(local_x_steps, step_size=self.step_size(clients.now))
        draw = local_draws(self.terms, self.batch_size, self.local_steps)
        x = clients.mean(kernel, clients.sample(), x, y, smoothness, draw=draw)
        return {"x": x, "y": y, "smoothness": smoothness}


@settings
class LFedNestSVRG(LFedNest):
    """LFedNest with FedSVRG on y: no drift below, the same bias above."""

    card: ClassVar[Card] = Card(
        "Tarzanagh et al. 2022 (LFedNest)",
        CODE,
        Cost("2*T + 1", "T*(p + 2*q) + p + q + 1", "T*2*q + p"),
        heterogeneity="no",
    )

    lower: FedSVRG = FedSVRG(steps=1, local_steps=5, step_size=Constant(0.05), batch_size=32)  # type: ignore[assignment]
