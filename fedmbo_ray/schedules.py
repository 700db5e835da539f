"""Step sizes as functions of the round: constant, scaled as in Theorem 1, or decaying."""

from typing import Annotated, Protocol

from annotated_types import Ge, Le

from fedmbo_ray.federation import Clients
from fedmbo_ray.registry import Component, ConfigError, Positive, Registry, settings


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


def weight(momentum: float, factor: float) -> float:
    """momentum · factor, the weight of what is new in a moving average: it must not exceed 1."""
    if momentum * factor > 1:
        raise ConfigError(f"a momentum's weight must be at most 1, but is {momentum:g} * {factor:g}; lower one of them")
    return momentum * factor


SCHEDULES = Registry(
    "step size schedule", "schedules", {"constant": Constant, "sqrt_speedup": SqrtSpeedup, "decay": Decay}
)

StepSize = Annotated[Schedule, Component(SCHEDULES, number="constant")]
