"""AdaFBiO (Huang 2022): local STORM momenta with adaptive step sizes that the server sets."""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedmbo_ray.algorithms.local_bsg import first_momenta, local_steps, start, storm_steps, storm_weights
from fedmbo_ray.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.federation import Clients
from fedmbo_ray.hypergradients.local_neumann import Series, local_draws
from fedmbo_ray.registry import Count, NonNegative, Positive, Probability, settings
from fedmbo_ray.schedules import Constant, Decay, StepSize
from fedmbo_ray.smoothness import NeumannScale, PowerIteration


def adaptive_steps(
    problem: Any, batches: Any, *point: Tensor, steps: Any, weights: Any, series: Series
) -> tuple[Tensor, ...]:
    """LocalBSGVRM's steps, with ηγA⁻¹ and ηλB⁻¹ in place of step sizes."""
    *rest, A, B = point
    return storm_steps(problem, batches, *rest, steps=(steps[0] / A, steps[1] / B), weights=weights, series=series)


@settings
class AdaFBiO:
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
    rate: StepSize = Decay(initial=0.5, power=1 / 3, offset=100.0)  # η
    momentum: NonNegative = 1.0  # c₂, of the hypergradient
    lower_momentum: NonNegative = 1.0  # c₁, of ∇_y g
    decay: Probability = 0.9  # ϱ
    damping: Positive = 0.1  # ρ
    local_steps: Count = 4  # τ
    terms: Count = 5  # N
    batch_size: Count = 32
    smoothness: NeumannScale = PowerIteration(every=5)  # ℓ
    series: Series = "term"

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> dict[str, Tensor]:
        return {**start(x, y), "a": torch.zeros_like(x), "b": y.new_zeros(())}

    def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y, u, w = (state[name] for name in ("x", "y", "u", "w"))
        smoothness = self.smoothness(clients, x, y, state["smoothness"])
        if clients.round == 0:
            u, w = first_momenta(self, clients, x, y, smoothness)
        a = self.decay * state["a"] + (1 - self.decay) * u * u
        b = self.decay * state["b"] + (1 - self.decay) * w.norm()
        steps, weights = local_steps(self, clients), self.weights(clients)
        kernel = partial(adaptive_steps, steps=steps, weights=weights, series=self.series)
        draw = local_draws(self.terms, self.batch_size, self.local_steps, more=1)
        A, B = a.sqrt() + self.damping, b + self.damping
        x, y, u, w = clients.mean(kernel, clients.everyone(), x, y, u, w, smoothness, A, B, draw=draw)
        return {"x": x, "y": y, "u": u, "w": w, "smoothness": smoothness, "a": a, "b": b}

    def weights(self, clients: Clients) -> tuple[float, float]:
        """c₂η² and c₁η²."""
        return storm_weights(self, clients)
