"""D-SOBA and MA-SOBA: one step in each of x, y and v per round, all along unbiased directions."""

from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Le
from torch import Tensor

from fedmbo_ray.cards import OURS, RECONSTRUCTED, Card, Cost
from fedmbo_ray.data import Draw
from fedmbo_ray.federation import Clients
from fedmbo_ray.oracles import grads_lagrangian
from fedmbo_ray.registry import Count, settings
from fedmbo_ray.schedules import Constant, StepSize


@settings
class DSOBA:
    """y ← y − β mean ∇_y g_i;  v ← v − ρ mean[∇²_yy g_i v − ∇_y f_i];  x ← x − α mean[∇_x f_i − ∇²_xy g_i v].

    All at the old (x, y, v), over one cohort, in one communication: the simplest method with linear speed-up.
    The three directions are the gradients of the Lagrangian f − ⟨∇_y g, v⟩ in v, y and x, up to sign.
    """

    card: ClassVar[Card] = Card(
        "Dagréou et al. 2022 (SOBA), averaged over clients", OURS, Cost("1", "p + 2*q", "p + 2*q")
    )

    step_size: StepSize = Constant(0.05)  # α
    lower_step_size: StepSize = Constant(0.3)  # β
    system_step_size: StepSize = Constant(0.1)  # ρ
    batch_size: Count = 32

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> dict[str, Tensor]:
        return {"x": x, "y": y, "v": torch.zeros_like(y)}

    def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y, v = state["x"], state["y"], state["v"]
        draw = (Draw("validation", self.batch_size), Draw("train", self.batch_size))
        d_x, d_y, d_v = clients.mean(grads_lagrangian, clients.sample(), x, y, v, draw=draw)
        return {
            "x": x - self.step_size(clients) * d_x,
            "y": y + self.lower_step_size(clients) * d_v,
            "v": v + self.system_step_size(clients) * d_y,
        }


@settings
class MASOBA:
    """D-SOBA with a moving average above: h ← (1 − θ)h + θ mean[∇_x f_i − ∇²_xy g_i v];  x ← x − αh.

    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card(
        "Chen, Xiao, Balasubramanian 2023 (MA-SOBA)", RECONSTRUCTED, Cost("1", "p + 2*q", "p + 2*q")
    )

    step_size: StepSize = Constant(0.05)  # α
    lower_step_size: StepSize = Constant(0.3)  # β
    system_step_size: StepSize = Constant(0.1)  # ρ
    averaging: Annotated[float, Gt(0), Le(1)] = 0.2  # θ; 1 is D-SOBA
    batch_size: Count = 32

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> dict[str, Tensor]:
        return {"x": x, "y": y, "v": torch.zeros_like(y), "h": torch.zeros_like(x)}

    def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y, v, h = state["x"], state["y"], state["v"], state["h"]
        draw = (Draw("validation", self.batch_size), Draw("train", self.batch_size))
        d_x, d_y, d_v = clients.mean(grads_lagrangian, clients.sample(), x, y, v, draw=draw)
        h = (1 - self.averaging) * h + self.averaging * d_x
        return {
            "x": x - self.step_size(clients) * h,
            "y": y + self.lower_step_size(clients) * d_v,
            "v": v + self.system_step_size(clients) * d_y,
            "h": h,
        }
