"""LocalBSGM and LocalBSGVRM (Gao 2022): local momentum steps along fully local hypergradients."""

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from fedmbo_ray.core.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.core.settings import Count, NonNegative, settings
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.federation.rounds import Round
from fedmbo_ray.methods.base import Averaging, State
from fedmbo_ray.methods.curvature import NeumannScale, PowerIteration, unmeasured
from fedmbo_ray.methods.hypergradients.local_neumann import (
    LocalDraws,
    LocalSamples,
    NeumannForm,
    local_draws,
    local_hypergradient,
    local_samples,
)
from fedmbo_ray.methods.schedules import Constant, Decay, StepSize, momentum_weight
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import Kernel, grad_y_lower

Levels = tuple[float, float]  # numbers for the upper level, and for the lower one


def local_directions(
    problem: Problem, samples: LocalSamples, x: Tensor, y: Tensor, smoothness: Tensor, series: NeumannForm
) -> tuple[Tensor, Tensor]:
    """The local hypergradient and ∇_y g_i on the samples of one step; the last training batch is for ∇_y g_i."""
    validation, train, J = samples
    u = local_hypergradient(problem, (validation, train[:-1], J), x, y, smoothness, series)
    return u, grad_y_lower(problem, train[-1], x, y)


def first_directions(
    problem: Problem, batches: LocalDraws, x: Tensor, y: Tensor, smoothness: Tensor, series: NeumannForm
) -> tuple[Tensor, Tensor]:
    """The momenta to start with."""
    return local_directions(problem, next(local_samples(batches)), x, y, smoothness, series)


def momentum_steps(
    problem: Problem, batches: LocalDraws, *point: Tensor, steps: Levels, weights: Levels, series: NeumannForm
) -> tuple[Tensor, ...]:
    """u_i ← (1 − aη)u_i + aη Ĥ_i, w_i ← (1 − bη)w_i + bη ∇_y g_i, then a step along both, τ times."""
    x, y, u, w, smoothness = point
    for samples in local_samples(batches):
        H, G = local_directions(problem, samples, x, y, smoothness, series)
        u, w = u + weights[0] * (H - u), w + weights[1] * (G - w)
        x, y = x - steps[0] * u, y - steps[1] * w
    return x, y, u, w


def storm_steps(
    problem: Problem,
    batches: LocalDraws,
    *point: Tensor,
    steps: Levels | tuple[Tensor, Tensor],
    weights: Levels,
    series: NeumannForm,
) -> tuple[Tensor, ...]:
    """A step along both momenta, then u_i ← Ĥ_i(new) + (1 − aη²)(u_i − Ĥ_i(old)) on the same samples, w_i likewise."""
    x, y, u, w, smoothness = point
    for samples in local_samples(batches):
        before = local_directions(problem, samples, x, y, smoothness, series)
        x, y = x - steps[0] * u, y - steps[1] * w
        after = local_directions(problem, samples, x, y, smoothness, series)
        u = after[0] + (1 - weights[0]) * (u - before[0])
        w = after[1] + (1 - weights[1]) * (w - before[1])
    return x, y, u, w


@settings
class LocalBSGM(Averaging):
    """Momentum on local hypergradients (u) and on ∇_y g_i (w); x, y, u, w are averaged over all clients every τ steps.

    The hypergradients are each client's own: biased where clients differ (see LFedNest). The first round has one
    more communication, for the (averaged) momenta to start with.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card(
        "Gao 2022 (LocalBSGM)",
        RECONSTRUCTED,
        Cost("1", "2*p + 2*q + 1", "2*p + 2*q"),
        participation="full",
        heterogeneity="no",
    )

    step_size: StepSize = Constant(0.01)  # γ_x
    lower_step_size: StepSize = Constant(0.1)  # γ_y
    rate: StepSize = Constant(0.5)  # η
    momentum: NonNegative = 1.0  # a
    lower_momentum: NonNegative = 1.0  # b
    local_steps: Count = 4  # τ
    terms: Count = 5  # N
    batch_size: Count = 32
    smoothness: NeumannScale = PowerIteration(every=5)  # ℓ
    series: NeumannForm = "term"

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y, "u": torch.zeros_like(x), "w": torch.zeros_like(y), "smoothness": unmeasured(y)}

    def round(self, clients: Clients, state: State) -> State:
        x, y, u, w = (state[name] for name in ("x", "y", "u", "w"))
        smoothness = self.smoothness(clients, x, y, state["smoothness"], self.batch_size)
        if clients.round == 0:
            u, w = self.first_momenta(clients, x, y, smoothness)
        draw = local_draws(self.terms, self.batch_size, self.local_steps, more=1)
        x, y, u, w = clients.mean(self.kernel(clients.now), clients.everyone(), x, y, u, w, smoothness, draw=draw)
        return {"x": x, "y": y, "u": u, "w": w, "smoothness": smoothness}

    def first_momenta(self, clients: Clients, *point: Tensor) -> tuple[Tensor, Tensor]:
        """ū and w̄ at the starting point, in a communication of their own."""
        draw = local_draws(self.terms, self.batch_size, more=1)
        return clients.mean(partial(first_directions, series=self.series), clients.everyone(), *point, draw=draw)

    def kernel(self, now: Round) -> Kernel:
        return partial(momentum_steps, steps=self.step_sizes(now), weights=self.weights(now), series=self.series)

    def step_sizes(self, now: Round) -> Levels:
        """ηγ_x and ηγ_y."""
        eta = self.rate(now)
        return eta * self.step_size(now), eta * self.lower_step_size(now)

    def weights(self, now: Round) -> Levels:
        """aη and bη."""
        eta = self.rate(now)
        return momentum_weight(self.momentum, eta), momentum_weight(self.lower_momentum, eta)


@settings
class LocalBSGVRM(LocalBSGM):
    """LocalBSGM with STORM momenta (LocalBSGVR in the paper's Table 1), η decaying like k^{-1/3} from round to round.

    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = LocalBSGM.card._replace(paper="Gao 2022 (LocalBSGVRM)")

    rate: StepSize = Decay(initial=0.5, power=1 / 3, offset=100.0)  # η

    def kernel(self, now: Round) -> Kernel:
        return partial(storm_steps, steps=self.step_sizes(now), weights=self.weights(now), series=self.series)

    def weights(self, now: Round) -> Levels:
        """aη² and bη²."""
        eta = self.rate(now)
        return momentum_weight(self.momentum, eta * eta), momentum_weight(self.lower_momentum, eta * eta)
