"""AdaFBiO (Huang 2022): local STORM momenta with adaptive step sizes that the server sets."""

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from fedmbo_ray.core.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.core.settings import NonNegative, Positive, Probability, settings
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.federation.rounds import Round
from fedmbo_ray.methods.algorithms.local_bsg import Levels, LocalBSGVRM, storm_steps
from fedmbo_ray.methods.base import State
from fedmbo_ray.methods.hypergradients.local_neumann import LocalDraws, NeumannForm, local_draws
from fedmbo_ray.methods.schedules import Constant, StepSize
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import Kernel


def adaptive_steps(
    problem: Problem, batches: LocalDraws, *point: Tensor, steps: Levels, weights: Levels, series: NeumannForm
) -> tuple[Tensor, ...]:
    """LocalBSGVRM's steps, with ηγA⁻¹ and ηλB⁻¹ in place of step sizes."""
    *rest, A, B = point
    return storm_steps(problem, batches, *rest, steps=(steps[0] / A, steps[1] / B), weights=weights, series=series)


@settings
class AdaFBiO(LocalBSGVRM):
    """x_i ← x_i − ηγA⁻¹u_i, y_i ← y_i − ηλB⁻¹w_i, STORM momenta u_i, w_i; averaged over all clients every τ steps.

    a ← ϱa + (1 − ϱ)ū∘ū, A = diag(√a + ρ);  b ← ϱb + (1 − ϱ)‖w̄‖, B = b + ρ, both frozen between averages. The
    hypergradients are each client's own, so it is biased where clients differ (see LFedNest), whatever Table 1 of
    the FedMBO paper ticks. η changes from round to round only. The first round has one more
    communication, for the (averaged) momenta to start with.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card(
        "Huang 2022 (AdaFBiO)",
        RECONSTRUCTED,
        Cost("1", "3*p + 2*q + 2", "2*p + 2*q"),
        participation="full",
        heterogeneity="no",
    )

    step_size: StepSize = Constant(0.002)  # γ
    lower_step_size: StepSize = Constant(0.03)  # λ
    momentum: NonNegative = 1.0  # c₂, of the hypergradient; weights of what is new are c₂η² and c₁η²
    lower_momentum: NonNegative = 1.0  # c₁, of ∇_y g
    decay: Probability = 0.9  # ϱ
    damping: Positive = 0.1  # ρ

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {**super().init(x, y, num_clients), "a": torch.zeros_like(x), "b": y.new_zeros(())}

    def round(self, clients: Clients, state: State) -> State:
        x, y, u, w = (state[name] for name in ("x", "y", "u", "w"))
        smoothness = self.smoothness(clients, x, y, state["smoothness"], self.batch_size)
        if clients.round == 0:
            u, w = self.first_momenta(clients, x, y, smoothness)
        a = self.decay * state["a"] + (1 - self.decay) * u * u
        b = self.decay * state["b"] + (1 - self.decay) * w.norm()
        A, B = a.sqrt() + self.damping, b + self.damping
        draw = local_draws(self.terms, self.batch_size, self.local_steps, more=1)
        kernel, point = self.kernel(clients.now), (x, y, u, w, smoothness, A, B)
        x, y, u, w = clients.mean(kernel, clients.everyone(), *point, draw=draw)
        return {"x": x, "y": y, "u": u, "w": w, "smoothness": smoothness, "a": a, "b": b}

    def kernel(self, now: Round) -> Kernel:
        return partial(adaptive_steps, steps=self.step_sizes(now), weights=self.weights(now), series=self.series)
