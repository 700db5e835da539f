"""SimFBO, ShroFBO (Yang, Xiao, Ji 2023) and MemFBO (Yang, Xiao, Ma, Ji 2025): one communication per round."""

from functools import partial
from typing import Any, ClassVar

import torch
from pydantic import model_validator
from torch import Tensor

from fedmbo_ray.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.data import Draw, Trait, unstack
from fedmbo_ray.federation import Clients
from fedmbo_ray.oracles import grad_y_lower, grads_lagrangian, grads_lower, grads_upper
from fedmbo_ray.registry import Count, Positive, settings
from fedmbo_ray.schedules import Constant, StepSize


def local_sums(
    problem: Any, batches: Any, x: Tensor, y: Tensor, v: Tensor, gradients: Any, steps: tuple[float, ...], fewest: int
) -> tuple[Tensor, ...]:
    """τ_i local steps; returns the sums Q_x, Q_y, Q_v of the directions taken, and τ_i. A slot that is done waits."""
    *samples, extra = batches
    tau = extra + fewest
    Q_x, Q_y, Q_v = torch.zeros_like(x), torch.zeros_like(y), torch.zeros_like(v)
    for t, batch in enumerate(unstack(tuple(samples))):
        a = (t < tau).to(y.dtype)  # weight of this step
        d_x, d_y, d_v = gradients(problem, batch, x - steps[0] * Q_x, y - steps[1] * Q_y, v - steps[2] * Q_v)
        Q_x, Q_y, Q_v = Q_x + a * d_x, Q_y - a * d_v, Q_v - a * d_y
    return Q_x, Q_y, Q_v, tau.to(y.dtype)


def directions(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    """What SimFBO's client uploads: Q_x, Q_y, Q_v."""
    return local_sums(*args, **kwargs)[:3]


def normalised_directions(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    """What ShroFBO's client uploads: Q_x/τ_i, Q_y/τ_i, Q_v/τ_i, τ_i."""
    *Q, tau = local_sums(*args, **kwargs)
    return *(each / tau for each in Q), tau


def projected(v: Tensor, radius: float | None) -> Tensor:
    """P_r(v) = v · min(1, r/‖v‖)."""
    return v if radius is None else v * (radius / v.norm()).clamp(max=1.0)


@settings
class SimFBO:
    """τ_i local steps on (x, y, v) at once; then (x, y, v) ← (x − γ_x Q̄_x, y − γ_y Q̄_y, P_r(v − γ_v Q̄_v)).

    Q̄ is the mean over the cohort of the sums of directions that its clients took; local steps have sizes of their
    own. A client has its own τ_i, from a range; where those differ, clients that take more steps count for more,
    and it stops elsewhere (see ShroFBO). The theory samples without replacement: `clients.replace: false`.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card("Yang, Xiao, Ji 2023 (SimFBO)", RECONSTRUCTED, Cost("1", "p + 2*q", "p + 2*q"))

    step_size: StepSize = Constant(0.05)  # γ_x
    lower_step_size: StepSize = Constant(0.3)  # γ_y
    system_step_size: StepSize = Constant(0.1)  # γ_v
    local_step_size: StepSize = Constant(0.05)  # η_x
    local_lower_step_size: StepSize = Constant(0.3)  # η_y
    local_system_step_size: StepSize = Constant(0.1)  # η_v
    local_steps: Count = 1  # the most a client takes
    fewest_local_steps: Count = 1  # the fewest
    radius: Positive | None = None  # r
    batch_size: Count = 32

    @model_validator(mode="after")
    def _range(self) -> "SimFBO":
        if self.fewest_local_steps > self.local_steps:
            raise ValueError(
                "`fewest_local_steps <= local_steps` must hold, "
                f"but got {self.fewest_local_steps} and {self.local_steps}"
            )
        return self

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> dict[str, Tensor]:
        return {"x": x, "y": y, "v": torch.zeros_like(y)}

    def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y, v = state["x"], state["y"], state["v"]
        Q_x, Q_y, Q_v = self._mean(clients, x, y, v)
        return {
            "x": x - self.step_size(clients) * Q_x,
            "y": y - self.lower_step_size(clients) * Q_y,
            "v": projected(v - self.system_step_size(clients) * Q_v, self.radius),
        }

    def _mean(self, clients: Clients, *point: Tensor) -> tuple[Tensor, ...]:
        return self._communicate(directions, clients, point)

    def _communicate(self, kernel: Any, clients: Clients, point: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        sizes = (self.local_step_size, self.local_lower_step_size, self.local_system_step_size)
        steps, fewest = tuple(size(clients) for size in sizes), self.fewest_local_steps
        kernel = partial(kernel, gradients=self._gradients(), steps=steps, fewest=fewest)
        validation, train = (Draw(split, self.batch_size, self.local_steps) for split in ("validation", "train"))
        draw = (validation, train, Trait(self.local_steps - fewest + 1))
        return clients.mean(kernel, clients.sample(), *point, draw=draw)

    def _gradients(self) -> Any:
        return grads_lagrangian


@settings
class ShroFBO(SimFBO):
    """SimFBO whose clients send Q_i/τ_i, and whose server multiplies the mean by mean_C τ_i: unequal τ_i do no harm.

    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card("Yang, Xiao, Ji 2023 (ShroFBO)", RECONSTRUCTED, Cost("1", "p + 2*q", "p + 2*q + 1"))

    local_steps: Count = 5
    local_step_size: StepSize = Constant(0.01)
    local_lower_step_size: StepSize = Constant(0.06)
    local_system_step_size: StepSize = Constant(0.02)

    def _mean(self, clients: Clients, *point: Tensor) -> tuple[Tensor, ...]:
        *Q, rho = self._communicate(normalised_directions, clients, point)
        return tuple(rho * each for each in Q)


def finite_differences(
    problem: Any, batch: Any, x: Tensor, y: Tensor, v: Tensor, difference: float
) -> tuple[Tensor, ...]:
    """The gradients of the Lagrangian from first derivatives alone: ∇²g v ≈ [∇g(x, y + δv) − ∇g(x, y − δv)]/(2δ)."""
    validation, train = batch
    above, below = (grads_lower(problem, train, x, y + sign * difference * v) for sign in (1, -1))
    xy, yy = ((a - b) / (2 * difference) for a, b in zip(above, below, strict=True))
    f_x, f_y = grads_upper(problem, validation, x, y)
    return f_x - xy, f_y - yy, -grad_y_lower(problem, train, x, y)


@settings
class MemFBO(SimFBO):
    """SimFBO with finite differences of gradients instead of second derivatives.

    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card("Yang, Xiao, Ma, Ji 2025 (MemFBO)", RECONSTRUCTED, Cost("1", "p + 2*q", "p + 2*q"))
    first_order: ClassVar[bool] = True

    difference: Positive = 0.01  # δ

    def _gradients(self) -> Any:
        return partial(finite_differences, difference=self.difference)
