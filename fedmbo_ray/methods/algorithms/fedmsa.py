"""FedMSA (Tarzanagh et al. 2023): recursive momenta over all clients, then local steps of a few."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Le
from torch import Tensor

from fedmbo_ray.core.cards import CODE, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw, unstack
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.algorithms.point import NAMES, directions, moved
from fedmbo_ray.methods.base import State
from fedmbo_ray.methods.lower.fedavg import FedAvg
from fedmbo_ray.methods.schedules import Constant, StepSize
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import Pair, Vectors, grad_y_through


def increments(problem: Problem, batch: Pair, *both: Tensor, keep: float) -> Vectors:
    """D_i(new) − (1 − ρ)·D_i(old) on the same samples."""
    after, before = directions(problem, batch, *both[:3]), directions(problem, batch, *both[3:])
    return tuple(now - keep * then for now, then in zip(after, before, strict=True))


def recursive_steps(problem: Problem, batches: Pair, *both: Tensor, steps: Sequence[float]) -> Vectors:
    """A step along d, then one for each batch along d_i ← d_i + D_i(new) − D_i(old) on its samples."""
    old, d = both[:3], both[3:]
    new = moved(old, d, steps)
    for batch in unstack(batches):
        after, before = directions(problem, batch, *new), directions(problem, batch, *old)
        d = tuple(m + a - b for m, a, b in zip(d, after, before, strict=True))
        old, new = new, moved(new, d, steps)
    return new


@settings
class FedMSA:
    """d = mean_i[D_i(z^k) + (1 − ρ)(d − D_i(z^{k−1}))] over all clients, then τ local steps of n clients, averaged.

    D_i are client i's directions in z = (x, y, v), at both points on the same samples (ρ = 1 at first). The authors'
    code takes all local data (`batch_size: null`); the recursion is exact then, and d = mean_i D_i for every ρ.
    The first round starts with FedAvg on y and Neumann steps on v, as the code does.
    """

    card: ClassVar[Card] = Card(
        "Tarzanagh et al. 2023 (FedMSA)",
        CODE,
        Cost("2", "m/n*(p + 2*q) + p + 2*q", "m/n*(p + 2*q) + p + 2*q"),
        participation="half",
        assumes="every client keeps the point of the last round, and the point that all clients receive in this round",
    )

    step_size: StepSize = Constant(0.05)  # α
    lower_step_size: StepSize = Constant(0.1)  # β, of y and of v
    recursion: Annotated[float, Gt(0), Le(1)] = 0.5  # ρ
    local_steps: Count = 4  # τ
    batch_size: Count | None = 32
    warm_up: FedAvg = FedAvg(steps=5, local_steps=5, step_size=Constant(0.1), batch_size=32)
    terms: Count = 5  # N, steps on v before the first round

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        point = {"x": x, "y": y, "v": torch.zeros_like(y)}
        before = {f"{name}_before": value for name, value in point.items()}
        return point | before | {f"d_{name}": torch.zeros_like(value) for name, value in point.items()}

    def round(self, clients: Clients, state: State) -> State:
        state = self._warmed_up(clients, state) if clients.round == 0 else state
        point, before, d = ([state[form.format(name)] for name in NAMES] for form in ("{}", "{}_before", "d_{}"))
        keep = 0.0 if clients.round == 0 else 1 - self.recursion
        everyone = clients.knowing(clients.everyone(), *before)
        news = clients.mean(partial(increments, keep=keep), everyone, *point, *before, draw=self._draw())
        d = [new + keep * old for new, old in zip(news, d, strict=True)]
        beta = self.lower_step_size(clients.now)
        kernel = partial(recursive_steps, steps=(self.step_size(clients.now), beta, beta))
        cohort = clients.knowing(clients.sample(), *point)  # which every client has just received
        x, y, v = clients.mean(kernel, cohort, *point, *d, draw=self._draw(self.local_steps - 1))
        momenta = {f"d_{name}": value for name, value in zip(NAMES, d, strict=True)}
        return {"x": x, "y": y, "v": v, **{f"{name}_before": state[name] for name in NAMES}, **momenta}

    def _draw(self, count: int | None = None) -> tuple[Draw, Draw]:
        return Draw("validation", self.batch_size, count), Draw("train", self.batch_size, count)

    def _warmed_up(self, clients: Clients, state: State) -> State:
        x, y, v, beta = state["x"], state["y"], state["v"], self.lower_step_size(clients.now)
        y, _ = self.warm_up.solve(clients, x, y, {})
        for cohort in clients.ahead(self.terms):
            v = v + beta * clients.mean(grad_y_through, cohort, x, y, v, draw=self._draw())
        return {**state, "y": y, "v": v}
