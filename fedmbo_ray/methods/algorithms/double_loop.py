"""The double loop of FedMBO (Algorithm 1) and of every method with its shape."""

from typing import Literal

from torch import Tensor

from fedmbo_ray.core.cards import card_of
from fedmbo_ray.core.errors import ConfigError, RunFailed
from fedmbo_ray.core.settings import settings
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State, as_part, kept_at_first, part_of
from fedmbo_ray.methods.curvature import NeumannScale, unmeasured
from fedmbo_ray.methods.hypergradients import Hypergradient
from fedmbo_ray.methods.lower import Lower
from fedmbo_ray.methods.outer import OuterStep, Plain
from fedmbo_ray.methods.schedules import StepSize


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

    def __post_init__(self) -> None:
        if self.cohort == "fixed" and self._relays:
            raise ConfigError(
                f"with {type(self.hypergradient).__name__} every communication needs clients that are independent of "
                "those before, else h is biased: `cohort` must be fresh or all, but got 'fixed'",
                "cohort",
            )

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        return {
            "x": x,
            "y": y,
            "smoothness": unmeasured(y),
            **as_part("lower", kept_at_first(self.lower, x, y, num_clients)),
            **as_part("hypergradient", kept_at_first(self.hypergradient, x, y, num_clients)),
        }

    def round(self, clients: Clients, state: State) -> State:
        x, y = state["x"], state["y"]
        y, below = self.lower.solve(clients, x, y, part_of(state, "lower"))
        smoothness = self.smoothness(clients, x, y, state["smoothness"], self.hypergradient.batch_size)
        chosen = self._chosen(clients)
        h, above = self.hypergradient.estimate(chosen, x, y, smoothness, part_of(state, "hypergradient"))
        if h.shape != x.shape:
            raise RunFailed(f"a hypergradient must have the shape of x, {tuple(x.shape)}, but has {tuple(h.shape)}")
        x = self.outer.step(chosen, x, y, h, self.step_size(clients.now))
        kept = {**as_part("lower", below), **as_part("hypergradient", above)}
        return {"x": x, "y": y, "smoothness": smoothness, **kept}

    def _chosen(self, clients: Clients) -> Clients:
        """The clients that the upper level meets."""
        if self.cohort == "fresh":
            return clients
        if self.cohort == "fixed":
            return clients.with_one_cohort(clients.sample())
        return clients.with_one_cohort(clients.everyone(), shuffled=self._relays)

    @property
    def _relays(self) -> bool:
        """Whether the estimator passes columns on from client to client."""
        card = card_of(self.hypergradient)
        return card is not None and card.relay
