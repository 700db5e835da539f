"""FedMSA (Tarzanagh et al. 2023): recursive momenta over all clients, then local steps of a few."""

from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Gt, Le
from torch import Tensor

from fedmbo_ray.algorithms.fedbio import directions, moved
from fedmbo_ray.cards import CODE, Card, Cost
from fedmbo_ray.data import Draw
from fedmbo_ray.federation import Clients
from fedmbo_ray.lower.fedavg import FedAvg
from fedmbo_ray.oracles import grad_y_through
from fedmbo_ray.registry import Count, settings
from fedmbo_ray.schedules import Constant, StepSize

ALL = (Draw("validation", None), Draw("train", None))
NAMES = ("x", "y", "v")


def recursion(problem: Any, batches: Any, *both: Tensor, keep: float) -> tuple[Tensor, ...]:
    """Uploads D_i − (1 − ρ)·(D_i of the round before) for the three directions D; keeps D_i."""
    point, last = both[:3], both[3:]
    D = directions(problem, batches, *point)
    return *(now - keep * before for now, before in zip(D, last, strict=True)), *D


def recursive_steps(
    problem: Any, batches: Any, *both: Tensor, steps: tuple[float, ...], count: int
) -> tuple[Tensor, ...]:
    """τ steps along d_i ← d_i + D_i(new) − D_i(old), the first along d itself."""
    old, d = both[:3], both[3:]
    for taken in range(1, count + 1):
        new = moved(old, d, steps)
        if taken < count:
            after, before = directions(problem, batches, *new), directions(problem, batches, *old)
            d = tuple(m + a - b for m, a, b in zip(d, after, before, strict=True))
        old = new
    return old


@settings
class FedMSA:
    """d = mean_i[D_i^k + (1 − ρ)(d^{k−1} − D_i^{k−1})] over all clients, then τ local steps of n clients, averaged.

    D_i are client i's directions in x, y and v on all its data, which it remembers from the round before
    (ρ = 1 at first). The first round starts with FedAvg on y and Neumann steps on v, as the authors' code does.
    """

    card: ClassVar[Card] = Card(
        "Tarzanagh et al. 2023 (FedMSA)",
        CODE,
        Cost("2", "m/n*(p + 2*q) + p + 2*q", "m/n*(p + 2*q) + p + 2*q"),
        participation="half",
    )

    step_size: StepSize = Constant(0.05)  # α
    lower_step_size: StepSize = Constant(0.1)  # β, of y and of v
    recursion: Annotated[float, Gt(0), Le(1)] = 0.5  # ρ
    local_steps: Count = 4  # τ
    warm_up: FedAvg = FedAvg(steps=5, local_steps=5, step_size=Constant(0.1), batch_size=32)
    terms: Count = 5  # N, steps on v before the first round

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> dict[str, Tensor]:
        point = {"x": x, "y": y, "v": torch.zeros_like(y)}
        momenta = {f"d_{name}": torch.zeros_like(value) for name, value in point.items()}
        memory = {f"D_{name}": value.new_zeros(num_clients, len(value)) for name, value in point.items()}
        return point | momenta | memory

    def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        state = self._warmed_up(clients, state) if clients.round == 0 else state
        point, d, D = ([state[prefix + name] for name in NAMES] for prefix in ("", "d_", "D_"))
        keep = 0.0 if clients.round == 0 else 1 - self.recursion
        everyone = clients.everyone()
        *news, D_x, D_y, D_v = clients.mean(partial(recursion, keep=keep), everyone, *point, own=D, draw=ALL)
        d = [new + keep * old for new, old in zip(news, d, strict=True)]
        beta = self.lower_step_size(clients)
        steps = (self.step_size(clients), beta, beta)
        kernel = partial(recursive_steps, steps=steps, count=self.local_steps)
        x, y, v = clients.mean(kernel, clients.some_of(everyone), *point, *d, draw=ALL)
        momenta = {f"d_{name}": value for name, value in zip(NAMES, d, strict=True)}
        return {"x": x, "y": y, "v": v, **momenta, "D_x": D_x, "D_y": D_y, "D_v": D_v}

    def _warmed_up(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y, v = state["x"], self.warm_up.solve(clients, state["x"], state["y"]), state["v"]
        for _ in range(self.terms):
            v = v + self.lower_step_size(clients) * clients.mean(grad_y_through, clients.sample(), x, y, v, draw=ALL)
        return {**state, "y": y, "v": v}
