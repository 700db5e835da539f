"""Step sizes as functions of the round: constant, scaled as in Theorem 1, or decaying."""

from typing import Annotated, Any, Protocol

from annotated_types import Ge, Gt

from fedmbo_ray.registry import Component, Registry, settings


class Schedule(Protocol):
    def __call__(self, clients: Any) -> float:
        """The step size of round k = clients.round, of clients.rounds = K with clients.cohort_size = n."""
        ...


@settings
class Constant:
    value: Annotated[float, Gt(0)]

    def __call__(self, clients: Any) -> float:
        return self.value


@settings
class SqrtSpeedup:
    """scale · √(n/K), the choice in Theorem 1 that gives the linear speed-up."""

    scale: Annotated[float, Gt(0)]

    def __call__(self, clients: Any) -> float:
        return self.scale * float(clients.cohort_size / clients.rounds) ** 0.5


@settings
class Decay:
    """initial / (1 + k/offset)^power."""

    initial: Annotated[float, Gt(0)]
    power: Annotated[float, Ge(0)] = 0.5
    offset: Annotated[float, Gt(0)] = 1.0

    def __call__(self, clients: Any) -> float:
        return self.initial / float(1 + clients.round / self.offset) ** self.power


SCHEDULES = Registry("step size schedule", {"constant": Constant, "sqrt_speedup": SqrtSpeedup, "decay": Decay})

StepSize = Annotated[Schedule, Component(SCHEDULES, number="constant")]
