"""SimFBO, ShroFBO (Yang, Xiao, Ji 2023) and MemFBO (Yang, Xiao, Ma, Ji 2025): one communication per round."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from fedmbo_ray.core.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.core.settings import Count, Positive, settings
from fedmbo_ray.data.batches import Draw, Samples, unstack
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.algorithms.point import ascent, directions, moved, projected
from fedmbo_ray.methods.base import State
from fedmbo_ray.methods.schedules import Constant, LocalSteps, StepSize, StepsPerClient
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import Pair, Vectors, grad_y_lower, grads_lower, grads_upper

StepDraws = tuple[Samples, Samples, Tensor]  # validation and training batches for τ_i local steps, and τ_i
Directions = Callable[..., Vectors]  # of a problem, a pair of batches and a point


def local_sums(
    problem: Problem, batches: StepDraws, *point: Tensor, steps: Sequence[float], along: Directions = directions
) -> Vectors:
    """What SimFBO's client uploads: the sums Q_x, Q_y, Q_v of the directions that τ_i steps take. Who is done waits."""
    validation, train, tau = batches
    Q = tuple(torch.zeros_like(part) for part in point)
    for t, batch in enumerate(unstack((validation, train))):
        D = along(problem, batch, *moved(point, Q, steps))
        Q = tuple(total + (t < tau) * each for total, each in zip(Q, D, strict=True))
    return Q


def local_means(problem: Problem, batches: StepDraws, *point: Tensor, steps: Sequence[float]) -> Vectors:
    """What ShroFBO's client uploads: Q_x/τ_i, Q_y/τ_i, Q_v/τ_i, τ_i."""
    tau = batches[2].to(point[0].dtype)
    return *(total / tau for total in local_sums(problem, batches, *point, steps=steps)), tau


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

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y, "v": torch.zeros_like(y)}

    def round(self, clients: Clients, state: State) -> State:
        return self._moved(clients, state, self._communicate(clients, state, local_sums))

    def _communicate(self, clients: Clients, state: State, kernel: Callable[..., Vectors]) -> Vectors:
        """The mean over a cohort of what its clients upload."""
        sizes = (self.local_step_size, self.local_lower_step_size, self.local_system_step_size)
        tau = self.local_steps.of(clients)
        draw = (Draw("validation", self.batch_size, tau), Draw("train", self.batch_size, tau), tau)
        steps = tuple(size(clients.now) for size in sizes)
        return clients.mean(
            partial(kernel, steps=steps), clients.sample(), state["x"], state["y"], state["v"], draw=draw
        )

    def _moved(self, clients: Clients, state: State, Q: Iterable[Tensor]) -> State:
        """The server's step."""
        sizes = (self.step_size, self.lower_step_size, self.system_step_size)
        x, y, v = moved((state["x"], state["y"], state["v"]), Q, [size(clients.now) for size in sizes])
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

    def round(self, clients: Clients, state: State) -> State:
        *Q, rho = self._communicate(clients, state, local_means)
        return self._moved(clients, state, [rho * mean for mean in Q])


def finite_differences(problem: Problem, batch: Pair, x: Tensor, y: Tensor, v: Tensor, difference: float) -> Vectors:
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

    card: ClassVar[Card] = SimFBO.card._replace(paper="Yang, Xiao, Ma, Ji 2025 (MemFBO)", first_order=True)

    difference: Positive = 0.01  # δ

    def round(self, clients: Clients, state: State) -> State:
        kernel = partial(local_sums, along=partial(finite_differences, difference=self.difference))
        return self._moved(clients, state, self._communicate(clients, state, kernel))
