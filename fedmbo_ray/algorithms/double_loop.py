"""The double loop of FedMBO (Algorithm 1) and of every method with its shape."""

import torch
from torch import Tensor

from fedmbo_ray.federation import Clients
from fedmbo_ray.hypergradients import Hypergradient
from fedmbo_ray.lower import Lower
from fedmbo_ray.registry import settings
from fedmbo_ray.schedules import StepSize
from fedmbo_ray.smoothness import NeumannScale


@settings
class DoubleLoop:
    """y^{k+1} = lower(x^k, y^k);  x^{k+1} = x^k − α_k · hypergradient(x^k, y^{k+1})."""

    lower: Lower
    hypergradient: Hypergradient
    step_size: StepSize  # α
    smoothness: NeumannScale  # ℓ

    def init(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"x": x, "y": y, "smoothness": torch.tensor(torch.nan, dtype=y.dtype)}

    def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y = state["x"], state["y"]
        y = self.lower.solve(clients, x, y)
        smoothness = self.smoothness(clients, x, y, state["smoothness"])
        h = self.hypergradient.estimate(clients, x, y, smoothness)
        return {"x": x - self.step_size(clients) * h, "y": y, "smoothness": smoothness}
