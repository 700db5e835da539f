"""LocalBSGM and LocalBSGVRM (Gao 2022): local momentum steps along fully local hypergradients."""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedmbo_ray.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.federation import Clients
from fedmbo_ray.hypergradients.local_neumann import Series, local_draws, local_hypergradient, local_samples
from fedmbo_ray.oracles import grad_y_lower
from fedmbo_ray.registry import Count, NonNegative, settings
from fedmbo_ray.schedules import Constant, Decay, StepSize, weight
from fedmbo_ray.smoothness import NeumannScale, PowerIteration, unmeasured


def directions(
    problem: Any, samples: Any, x: Tensor, y: Tensor, smoothness: Tensor, series: Series
) -> tuple[Tensor, Tensor]:
    """The local hypergradient and ∇_y g_i on the samples of one step; the last training batch is for ∇_y g_i."""
    validation, train, J = samples
    u = local_hypergradient(problem, (validation, train[:-1], J), x, y, smoothness, series)
    return u, grad_y_lower(problem, train[-1], x, y)


def first_directions(
    problem: Any, batches: Any, x: Tensor, y: Tensor, smoothness: Tensor, series: Series
) -> tuple[Tensor, Tensor]:
    """The momenta to start with."""
    return directions(problem, next(local_samples(batches)), x, y, smoothness, series)


def momentum_steps(
    problem: Any, batches: Any, *point: Tensor, steps: Any, weights: Any, series: Series
) -> tuple[Tensor, ...]:
    """u_i ← (1 − aη)u_i + aη Ĥ_i, w_i ← (1 − bη)w_i + bη ∇_y g_i, then a step along both, τ times."""
    x, y, u, w, smoothness = point
    for samples in local_samples(batches):
        H, G = directions(problem, samples, x, y, smoothness, series)
        u, w = u + weights[0] * (H - u), w + weights[1] * (G - w)
        x, y = x - steps[0] * u, y - steps[1] * w
    return x, y, u, w


def storm_steps(
    problem: Any, batches: Any, *point: Tensor, steps: Any, weights: Any, series: Series
) -> tuple[Tensor, ...]:
    """A step along both momenta, then u_i ← Ĥ_i(new) + (1 − aη²)(u_i − Ĥ_i(old)) on the same samples, w_i likewise."""
    x, y, u, w, smoothness = point
    for samples in local_samples(batches):
        before = directions(problem, samples, x, y, smoothness, series)
        x, y = x - steps[0] * u, y - steps[1] * w
        after = directions(problem, samples, x, y, smoothness, series)
        u = after[0] + (1 - weights[0]) * (u - before[0])
        w = after[1] + (1 - weights[1]) * (w - before[1])
    return x, y, u, w


def first_momenta(method: Any, clients: Clients, *point: Tensor) -> Any:
    """ū and w̄ at the starting point, in a communication of their own."""
    draw = local_draws(method.terms, method.batch_size, more=1)
    kernel = partial(first_directions, series=method.series)
    return clients.mean(kernel, clients.everyone(), *point, draw=draw)


def local_steps(method: Any, clients: Clients) -> tuple[float, float]:
    """ηγ_x and ηγ_y."""
    eta = method.rate(clients)
    return eta * method.step_size(clients), eta * method.lower_step_size(clients)


def storm_weights(method: Any, clients: Clients) -> tuple[float, float]:
    eta = method.rate(clients)
    return weight(method.momentum, eta * eta), weight(method.lower_momentum, eta * eta)


def start(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    return {"x": x, "y": y, "u": torch.zeros_like(x), "w": torch.zeros_like(y), "smoothness": unmeasured(y)}


@settings
class LocalBSGM:
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
    series: Series = "term"

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> dict[str, Tensor]:
        return start(x, y)

    def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y, u, w = (state[name] for name in ("x", "y", "u", "w"))
        smoothness = self.smoothness(clients, x, y, state["smoothness"])
        if clients.round == 0:
            u, w = first_momenta(self, clients, x, y, smoothness)
        draw = local_draws(self.terms, self.batch_size, self.local_steps, more=1)
        x, y, u, w = clients.mean(self._kernel(clients), clients.everyone(), x, y, u, w, smoothness, draw=draw)
        return {"x": x, "y": y, "u": u, "w": w, "smoothness": smoothness}

    def _kernel(self, clients: Clients) -> Any:
        steps, weights = local_steps(self, clients), self.weights(clients)
        return partial(momentum_steps, steps=steps, weights=weights, series=self.series)

    def weights(self, clients: Clients) -> tuple[float, float]:
        """aη and bη."""
        eta = self.rate(clients)
        return weight(self.momentum, eta), weight(self.lower_momentum, eta)


@settings
class LocalBSGVRM(LocalBSGM):
    """LocalBSGM with STORM momenta (LocalBSGVR in the paper's Table 1), η decaying like k^{-1/3} from round to round.

    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = LocalBSGM.card._replace(paper="Gao 2022 (LocalBSGVRM)")

    rate: StepSize = Decay(initial=0.5, power=1 / 3, offset=100.0)  # η

    def _kernel(self, clients: Clients) -> Any:
        steps, weights = local_steps(self, clients), self.weights(clients)
        return partial(storm_steps, steps=steps, weights=weights, series=self.series)

    def weights(self, clients: Clients) -> tuple[float, float]:
        """aη² and bη²."""
        return storm_weights(self, clients)
