"""Template of a lower solver: ``solve(clients, x, y, kept)`` returns a better y for the same x, and what to keep."""

from typing import ClassVar

from torch import Tensor

from fedmbo_ray import Card, Clients, Cost, Count, Draw, Probability, State, StepSize, oracles, settings


@settings  # a frozen dataclass, whose fields are the keys in YAML and are checked when a config is read
class HeavyBall:
    """y^{t+1} = y^t − β·G^t + θ(y^t − y^{t−1}) with minibatch gradients G^t, a fresh cohort for every t."""

    # What the catalogue shows; tests compare the cost with what is actually sent.
    card: ClassVar[Card] = Card("Polyak 1964", "ours", Cost(communications="T", down="T*(p + q)", up="T*q"))

    steps: Count  # T
    step_size: StepSize  # β: a number, or a schedule such as {name: decay, initial: 0.1}
    batch_size: Count
    momentum: Probability = 0.9  # θ

    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        last = y
        for _ in range(self.steps):
            # One communication: n fresh clients get x and y, each returns ∇_y g_i on a batch of its training split.
            G = clients.mean(oracles.grad_y_lower, clients.sample(), x, y, draw=Draw("train", self.batch_size))
            y, last = y - self.step_size(clients.now) * G + self.momentum * (y - last), y
        return y, kept  # `kept` is empty: this solver keeps nothing between rounds (see Memory in docs/adding.md)
