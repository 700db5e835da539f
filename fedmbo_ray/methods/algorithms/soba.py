"""D-SOBA and MA-SOBA: one step in each of x, y and v per round, all along unbiased directions."""

from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Le
from torch import Tensor

from fedmbo_ray.core.cards import OURS, RECONSTRUCTED, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.federation.rounds import Round
from fedmbo_ray.methods.algorithms.point import ascent, moved
from fedmbo_ray.methods.base import State
from fedmbo_ray.methods.schedules import Constant, StepSize
from fedmbo_ray.problems.oracles import Vectors, grads_lagrangian


@settings
class DSOBA:
    """y ← y − β mean ∇_y g_i;  v ← v − ρ mean[∇²_yy g_i v − ∇_y f_i];  x ← x − α mean[∇_x f_i − ∇²_xy g_i v].

    All at the old (x, y, v), over one cohort, in one communication: the simplest method with linear speed-up.
    SOBA with every oracle a mean over clients; not the method of that name for networks without a server.
    """

    card: ClassVar[Card] = Card(
        "Dagréou et al. 2022 (SOBA), averaged over clients", OURS, Cost("1", "p + 2*q", "p + 2*q")
    )

    step_size: StepSize = Constant(0.05)  # α
    lower_step_size: StepSize = Constant(0.3)  # β
    system_step_size: StepSize = Constant(0.1)  # ρ
    batch_size: Count = 32

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y, "v": torch.zeros_like(y)}

    def round(self, clients: Clients, state: State) -> State:
        point = (state["x"], state["y"], state["v"])
        x, y, v = moved(point, self._directions(clients, point), self._steps(clients.now))
        return {"x": x, "y": y, "v": v}

    def _directions(self, clients: Clients, point: Vectors) -> Vectors:
        draw = (Draw("validation", self.batch_size), Draw("train", self.batch_size))
        return ascent(*clients.mean(grads_lagrangian, clients.sample(), *point, draw=draw))

    def _steps(self, now: Round) -> tuple[float, ...]:
        return self.step_size(now), self.lower_step_size(now), self.system_step_size(now)


@settings
class MASOBA(DSOBA):
    """D-SOBA with a moving average above: h ← (1 − θ)h + θ mean[∇_x f_i − ∇²_xy g_i v];  x ← x − αh.

    Reconstructed; not checked against the paper's text. (It may move x along the old h and average afterwards.)
    """

    card: ClassVar[Card] = DSOBA.card._replace(paper="Chen, Xiao, Balasubramanian 2023 (MA-SOBA)", status=RECONSTRUCTED)

    averaging: Annotated[float, Gt(0), Le(1)] = 0.2  # θ; 1 is D-SOBA

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {"x": x, "y": y, "v": torch.zeros_like(y), "h": torch.zeros_like(x)}

    def round(self, clients: Clients, state: State) -> State:
        point = (state["x"], state["y"], state["v"])
        d_x, *others = self._directions(clients, point)
        h = (1 - self.averaging) * state["h"] + self.averaging * d_x
        x, y, v = moved(point, (h, *others), self._steps(clients.now))
        return {"x": x, "y": y, "v": v, "h": h}
