"""SimFBO, ShroFBO (Yang, Xiao, Ji 2023) and MemFBO (Yang, Xiao, Ma, Ji 2025): one communication per round."""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedmbo_ray.algorithms.point import Point, ascent, directions, moved, projected
from fedmbo_ray.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.data import Draw, unstack
from fedmbo_ray.federation import Clients
from fedmbo_ray.oracles import grad_y_lower, grads_lower, grads_upper
from fedmbo_ray.registry import Count, Positive, settings
from fedmbo_ray.schedules import Constant, LocalSteps, StepSize, StepsPerClient


def local_sums(problem: Any, batches: Any, *point: Tensor, steps: Any, directions: Any = directions) -> Point:
    """The sums Q_x, Q_y, Q_v of the directions that τ_i local steps take, and τ_i. A slot that is done waits."""
    *samples, tau = batches
    Q = tuple(torch.zeros_like(part) for part in point)
    for t, batch in enumerate(unstack(tuple(samples))):
        D = directions(problem, batch, *moved(point, Q, steps))
        Q = tuple(total + (t < tau) * each for total, each in zip(Q, D, strict=True))
    return *Q, tau.to(point[0].dtype)


def sums(*args: Any, **kwargs: Any) -> Point:
    """What SimFBO's client uploads: Q_x, Q_y, Q_v."""
    return local_sums(*args, **kwargs)[:3]


def means(*args: Any, **kwargs: Any) -> Point:
    """What ShroFBO's client uploads: Q_x/τ_i, Q_y/τ_i, Q_v/τ_i, τ_i."""
    *Q, tau = local_sums(*args, **kwargs)
    return *(total / tau for total in Q), tau


@settings
class SimFBO:
    """τ_i local steps on (x, y, v) at once; then (x, y, v) ← (x − γ_x Q̄_x, y − γ_y Q̄_y, P_r(v − γ_v Q̄_v)).

    Q̄ is the mean over the cohort of the sums of directions that its clients took (all with weight 1); local steps
    have sizes of their own. Where clients' τ_i differ, those that take more steps count for more, and it stops
    elsewhere (see ShroFBO). The theory samples without replacement: `clients.replace: false`.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card(
        "Yang, Xiao, Ji 2023 (SimFBO)", RECONSTRUCTED, Cost("1", "p + 2*q", "p + 2*q"), heterogeneity="drift"
    )

    step_size: StepSize = Constant(0.03)  # γ_x
    lower_step_size: StepSize = Constant(0.15)  # γ_y
    system_step_size: StepSize = Constant(0.05)  # γ_v
    local_step_size: StepSize = Constant(0.01)  # η_x
    local_lower_step_size: StepSize = Constant(0.05)  # η_y
    local_system_step_size: StepSize = Constant(0.02)  # η_v
    local_steps: StepsPerClient = LocalSteps(4, 4)  # τ_i; 1 is D-SOBA
    radius: Positive | None = None  # r
    batch_size: Count = 32

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> dict[str, Tensor]:
        return {"x": x, "y": y, "v": torch.zeros_like(y)}

    def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._moved(clients, state, self._communicate(clients, state, sums))

    def _communicate(self, clients: Clients, state: dict[str, Tensor], kernel: Any, **options: Any) -> Any:
        """The mean over a cohort of what its clients upload."""
        sizes = (self.local_step_size, self.local_lower_step_size, self.local_system_step_size)
        tau = self.local_steps.of(clients)
        draw = (Draw("validation", self.batch_size, tau), Draw("train", self.batch_size, tau), tau)
        kernel = partial(kernel, steps=tuple(size(clients) for size in sizes), **options)
        return clients.mean(kernel, clients.sample(), state["x"], state["y"], state["v"], draw=draw)

    def _moved(self, clients: Clients, state: dict[str, Tensor], Q: Any) -> dict[str, Tensor]:
        """The server's step."""
        sizes = (self.step_size, self.lower_step_size, self.system_step_size)
        x, y, v = moved((state["x"], state["y"], state["v"]), Q, [size(clients) for size in sizes])
        return {"x": x, "y": y, "v": projected(v, self.radius)}


@settings
class ShroFBO(SimFBO):
    """SimFBO whose clients send Q_i/τ_i, and whose server multiplies the mean by mean_C τ_i: unequal τ_i do no harm.

    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card(
        "Yang, Xiao, Ji 2023 (ShroFBO)", RECONSTRUCTED, Cost("1", "p + 2*q", "p + 2*q + 1"), heterogeneity="drift"
    )

    local_steps: StepsPerClient = LocalSteps(1, 7)

    def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        *Q, rho = self._communicate(clients, state, means)
        return self._moved(clients, state, [rho * mean for mean in Q])


def finite_differences(problem: Any, batch: Any, x: Tensor, y: Tensor, v: Tensor, difference: float) -> Point:
    """The directions from first derivatives alone: ∇²g v ≈ [∇g(x, y + δv) − ∇g(x, y − δv)]/(2δ)."""
    validation, train = batch
    above, below = (grads_lower(problem, train, x, y + sign * difference * v) for sign in (1, -1))
    xy, yy = ((a - b) / (2 * difference) for a, b in zip(above, below, strict=True))
    f_x, f_y = grads_upper(problem, validation, x, y)
    return ascent(f_x - xy, f_y - yy, -grad_y_lower(problem, train, x, y))


@settings
class MemFBO(SimFBO):
    """SimFBO with finite differences of gradients instead of second derivatives.

    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = SimFBO.card._replace(paper="Yang, Xiao, Ma, Ji 2025 (MemFBO)")
    first_order: ClassVar[bool] = True

    difference: Positive = 0.01  # δ

    def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        differences = partial(finite_differences, difference=self.difference)
        return self._moved(clients, state, self._communicate(clients, state, sums, directions=differences))
