"""Step sizes as functions of the round: constant, scaled as in Theorem 1, or decaying."""

from typing import Annotated, Any, Protocol

from annotated_types import Ge, Le
from pydantic import BeforeValidator

from fedmbo_ray.data import Trait
from fedmbo_ray.federation import Clients
from fedmbo_ray.registry import Component, ConfigError, Count, Positive, Registry, settings


class Schedule(Protocol):
    def __call__(self, clients: Clients) -> float:
        """The step size of round k = clients.round, of clients.rounds = K with clients.cohort_size = n."""
        ...


@settings
class Constant:
    """The same in every round."""

    value: Positive

    def __call__(self, clients: Clients) -> float:
        return self.value


@settings
class SqrtSpeedup:
    """scale · √(n/K), the choice in Theorem 1 that gives the linear speed-up."""

    scale: Positive

    def __call__(self, clients: Clients) -> float:
        return self.scale * float(clients.cohort_size / clients.rounds) ** 0.5


@settings
class Decay:
    """initial / (1 + k/offset)^power."""

    initial: Positive
    power: Annotated[float, Ge(0), Le(10)] = 0.5
    offset: Annotated[float, Ge(1e-3)] = 1.0

    def __call__(self, clients: Clients) -> float:
        return self.initial / float(1 + clients.round / self.offset) ** self.power


@settings
class LocalSteps:
    """How many local steps τ_i client i takes: its own number, between `fewest` and `most`."""

    fewest: Count
    most: Count

    def __post_init__(self) -> None:
        if self.fewest > self.most:
            raise ValueError(f"`fewest <= most` must hold, but got fewest={self.fewest}, most={self.most}")

    def of(self, clients: Clients) -> Trait:
        return Trait(self.fewest, self.most, clients.federation.seed)


def _range(steps: Any) -> Any:
    return {"fewest": steps, "most": steps} if isinstance(steps, int) and not isinstance(steps, bool) else steps


# In a config a number, the same for all, or {fewest: 1, most: 5}.
StepsPerClient = Annotated[LocalSteps, BeforeValidator(_range)]


def weight(momentum: float, factor: float) -> float:
    """momentum · factor, the weight of what is new in a moving average: it must not exceed 1."""
    if momentum * factor > 1:
        raise ConfigError(
            f"a momentum's weight must be at most 1, but is {momentum:g} * {factor:g}; lower rate or momentum"
        )
    return momentum * factor


SCHEDULES = Registry(
    "step size schedule",
    "schedules",
    ("__call__",),
    {"constant": Constant, "sqrt_speedup": SqrtSpeedup, "decay": Decay},
)

StepSize = Annotated[Schedule, Component(SCHEDULES, number="constant")]
