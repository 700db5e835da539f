"""Step sizes as functions of the round: constant, scaled as in Theorem 1, or decaying."""

from typing import Annotated, ClassVar, Protocol

from annotated_types import Ge, Le
from pydantic import BeforeValidator

from fedmbo_ray.core.components import Component, parts_of
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.core.settings import Count, Positive, settings
from fedmbo_ray.data.batches import Trait
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.federation.rounds import Round


class Schedule(Protocol):
    """A step size that may change from round to round, but never grows.

    One whose values depend on K, the length of the run, says ``uses_horizon: ClassVar[bool] = True``: a run with it
    can't be made longer later on.
    """

    def __call__(self, now: Round) -> float:
        """The step size of round `now.k` of `now.K`, with cohorts of `now.n` clients."""
        ...


@settings
class Constant:
    """The same in every round."""

    value: Positive

    def __call__(self, now: Round) -> float:
        return self.value


@settings
class SqrtSpeedup:
    """scale · √(n/K), the choice in Theorem 1 that gives the linear speed-up."""

    uses_horizon: ClassVar[bool] = True

    scale: Positive

    def __call__(self, now: Round) -> float:
        if now.K is None:
            raise ConfigError("sqrt_speedup is scale·√(n/K), so `rounds` (K) must be given, even with a budget")
        return self.scale * float(now.n / now.K) ** 0.5


@settings
class Decay:
    """initial / (1 + k/offset)^power."""

    initial: Positive
    power: Annotated[float, Ge(0), Le(10)] = 0.5
    offset: Annotated[float, Ge(1e-3)] = 1.0

    def __call__(self, now: Round) -> float:
        return self.initial / float(1 + now.k / self.offset) ** self.power


def uses_horizon(component: object) -> tuple[str, ...] | None:
    """The path of keys to the first schedule inside a component whose values depend on K, None if there is none.

    Example:
        >>> from fedmbo_ray.methods.algorithms.soba import DSOBA
        >>> uses_horizon(DSOBA(lower_step_size=SqrtSpeedup(scale=1.0)))
        ('lower_step_size',)
    """
    return next((path for path, part in parts_of(component) if getattr(part, "uses_horizon", False)), None)


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


def _range(steps: object) -> object:
    return {"fewest": steps, "most": steps} if isinstance(steps, int) and not isinstance(steps, bool) else steps


# In a config a number, the same for all, or {fewest: 1, most: 5}.
StepsPerClient = Annotated[LocalSteps, BeforeValidator(_range)]


def momentum_weight(momentum: float, factor: float) -> float:
    """momentum · factor, the weight of what is new in a moving average: it must not exceed 1."""
    if momentum * factor > 1:
        raise ConfigError(
            f"a momentum's weight must be at most 1, but is {momentum:g} * {factor:g}; lower rate or momentum"
        )
    return momentum * factor


SCHEDULES = Registry(
    "step size schedule",
    "schedules",
    Schedule,
    {"constant": Constant, "sqrt_speedup": SqrtSpeedup, "decay": Decay},
)

StepSize = Annotated[Schedule, Component(SCHEDULES, number="constant")]
