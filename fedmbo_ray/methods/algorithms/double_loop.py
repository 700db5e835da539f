"""The double loop of FedMBO (Algorithm 1) and of every method with its shape."""

from typing import Literal

from torch import Tensor

from fedmbo_ray import memory
from fedmbo_ray.federation import Clients, RunFailed
from fedmbo_ray.hypergradients import Hypergradient
from fedmbo_ray.lower import Lower
from fedmbo_ray.outer import OuterStep, Plain
from fedmbo_ray.registry import settings
from fedmbo_ray.schedules import StepSize
from fedmbo_ray.smoothness import NeumannScale, unmeasured


@settings
class DoubleLoop:
    """y^{k+1} = lower(x^k, y^k);  x^{k+1} = x^k − α_k · hypergradient(x^k, y^{k+1}), or another outer step.

    The parts are chosen freely; methods that are a fixed choice of them have names of their own.
    """

    lower: Lower
    hypergradient: Hypergradient
    step_size: StepSize  # α
    smoothness: NeumannScale  # ℓ
    outer: OuterStep = Plain()
    cohort: Literal["fresh", "fixed", "all"] = "fresh"  # above: one per communication, one for a round, all clients

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> dict[str, Tensor]:
        return {
            "x": x,
            "y": y,
            "smoothness": unmeasured(y),
            **memory.start(self.lower, "lower", y, num_clients),
            **memory.start(self.hypergradient, "hypergradient", y, num_clients),
        }

    def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y = state["x"], state["y"]
        y, below = memory.call(self.lower.solve, "lower", state, clients, x, y)
        smoothness = self.smoothness(clients, x, y, state["smoothness"])
        chosen = self._chosen(clients)
        h, above = memory.call(self.hypergradient.estimate, "hypergradient", state, chosen, x, y, smoothness)
        if h.shape != x.shape:
            raise RunFailed(f"a hypergradient must have the shape of x, {tuple(x.shape)}, but has {tuple(h.shape)}")
        x = self.outer.step(chosen, x, y, h, self.step_size(clients))
        return {"x": x, "y": y, "smoothness": smoothness, **below, **above}

    def _chosen(self, clients: Clients) -> Clients:
        """The clients that the upper level meets."""
        if self.cohort == "fresh":
            return clients
        return clients.with_one_cohort(clients.everyone() if self.cohort == "all" else clients.sample())
