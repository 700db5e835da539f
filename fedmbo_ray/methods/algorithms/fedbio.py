"""FedBiO and FedBiOAcc (Li, Huang, Huang 2023): local steps on x, y and v at once, averaged over all clients."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from fedmbo_ray.core.cards import RECONSTRUCTED, Card, Cost
from fedmbo_ray.core.settings import Count, NonNegative, Positive, settings
from fedmbo_ray.data.batches import Draw, unstack
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.federation.rounds import Round
from fedmbo_ray.methods.algorithms.point import NAMES, directions, moved, projected
from fedmbo_ray.methods.base import Averaging, State
from fedmbo_ray.methods.schedules import Constant, Decay, StepSize, momentum_weight
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import Kernel, Pair, Vectors


def pairs(size: int, count: int | None = None) -> tuple[Draw, Draw]:
    """A validation batch and a training batch for each of `count` steps."""
    return Draw("validation", size, count), Draw("train", size, count)


def single_loop_steps(problem: Problem, batches: Pair, *point: Tensor, steps: Sequence[float]) -> Vectors:
    """(x_i, y_i, v_i) after τ steps, all three directions at the old point."""
    for batch in unstack(batches):
        point = moved(point, directions(problem, batch, *point), steps)
    return point


@settings
class FedBiO:
    """x_i ← x_i − α(∇_x f_i − ∇²_xy g_i v_i);  y_i ← y_i − β∇_y g_i;  v_i ← v_i − ρ(∇²_yy g_i v_i − ∇_y f_i), τ times.

    Then all three are averaged over all clients. One training and one validation batch per step serve all three
    directions; each is unbiased all the same. Local steps drift apart by O(τ · step) where clients differ.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card(
        "Li, Huang, Huang 2023 (FedBiO)",
        RECONSTRUCTED,
        Cost("1", "p + 2*q", "p + 2*q"),
        participation="full",
        heterogeneity="drift",
    )

    step_size: StepSize = Constant(0.02)  # α
    lower_step_size: StepSize = Constant(0.1)  # β
    system_step_size: StepSize = Constant(0.05)  # ρ
    local_steps: Count = 4  # τ
    batch_size: Count = 32

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y, "v": torch.zeros_like(y)}

    def round(self, clients: Clients, state: State) -> State:
        point = (state["x"], state["y"], state["v"])
        x, y, v = clients.mean(self.kernel(clients.now), clients.everyone(), *point, draw=self.draw)
        return {"x": x, "y": y, "v": v}

    @property
    def draw(self) -> tuple[Draw, Draw]:
        return pairs(self.batch_size, self.local_steps)

    def kernel(self, now: Round) -> Kernel:
        sizes = (self.step_size, self.lower_step_size, self.system_step_size)
        return partial(single_loop_steps, steps=tuple(size(now) for size in sizes))


def accelerated_steps(
    problem: Problem, batches: Pair, *both: Tensor, steps: Sequence[float], keep: float, radius: float | None
) -> Vectors:
    """τ steps along momenta d ← G(new; ξ) + (1 − cη²)(d − G(old; ξ)); returns the point and the momenta."""
    old, d = both[:3], both[3:]
    for batch in unstack(batches):
        x, y, v = moved(old, d, steps)
        new = (x, y, projected(v, radius))
        after, before = directions(problem, batch, *new), directions(problem, batch, *old)
        d = tuple(a + keep * (m - b) for a, m, b in zip(after, d, before, strict=True))
        old = new
    return *old, *d


@settings
class FedBiOAcc(Averaging):
    """FedBiO along STORM momenta of all three directions, with steps αη, βη, ρη; momenta are averaged, too.

    d ← G(new; ξ) + (1 − cη²)(d − G(old; ξ)), the same samples at both points; η decays like k^{-1/3}, and is constant
    during a round. With a radius, v is kept in a ball. The first round has one more communication, for the (averaged)
    momenta to start with.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card(
        "Li, Huang, Huang 2023 (FedBiOAcc)",
        RECONSTRUCTED,
        Cost("1", "2*p + 4*q", "2*p + 4*q"),
        participation="full",
        heterogeneity="drift",
    )

    step_size: StepSize = Constant(0.01)  # α
    lower_step_size: StepSize = Constant(0.05)  # β
    system_step_size: StepSize = Constant(0.02)  # ρ
    rate: StepSize = Decay(initial=1.0, power=1 / 3, offset=100.0)  # η
    momentum: NonNegative = 0.1  # c
    radius: Positive | None = None  # of the ball for v
    local_steps: Count = 4  # τ
    batch_size: Count = 32

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        point = {"x": x, "y": y, "v": torch.zeros_like(y)}
        return point | {f"d_{name}": torch.zeros_like(value) for name, value in point.items()}

    def round(self, clients: Clients, state: State) -> State:
        point, d = ([state[prefix + name] for name in NAMES] for prefix in ("", "d_"))
        if clients.round == 0:
            d = list(clients.mean(directions, clients.everyone(), *point, draw=pairs(self.batch_size)))
        new = clients.mean(self.kernel(clients.now), clients.everyone(), *point, *d, draw=self.draw)
        return dict(zip(("x", "y", "v", "d_x", "d_y", "d_v"), new, strict=True))

    @property
    def draw(self) -> tuple[Draw, Draw]:
        return pairs(self.batch_size, self.local_steps)

    def kernel(self, now: Round) -> Kernel:
        sizes, eta = (self.step_size, self.lower_step_size, self.system_step_size), self.rate(now)
        steps, keep = tuple(eta * size(now) for size in sizes), 1 - self.weights(now)[0]
        return partial(accelerated_steps, steps=steps, keep=keep, radius=self.radius)

    def weights(self, now: Round) -> tuple[float]:
        """cη²."""
        eta = self.rate(now)
        return (momentum_weight(self.momentum, eta * eta),)
