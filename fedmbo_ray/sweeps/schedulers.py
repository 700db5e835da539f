"""Which trials go on, and which are stopped or changed on the way."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol

from annotated_types import Ge

from fedmbo_ray.core.components import Component
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.core.settings import Count, settings

if TYPE_CHECKING:
    from ray.tune.schedulers import TrialScheduler

    from fedmbo_ray.sweeps.space import Space

NO_END = 10**9  # in rounds: for trials that only their budget ends


class Scheduler(Protocol):
    compares: ClassVar[bool]  # whether a trial's fate depends on others, so that it must hear of those that have ended
    waits: ClassVar[bool]  # whether trials wait for each other at rungs
    copies: ClassVar[bool]  # whether a trial may go on from another's checkpoint, at a new point

    def make(self, space: "Space", rounds: int) -> "TrialScheduler":
        """Ray Tune's scheduler by `score` and `round`, on a space of its own domains, for trials of so many rounds."""
        ...

    def rungs(self, rounds: int) -> Iterator[int]:
        """The rounds, below `rounds`, at which every trial waits for all others, and some trials are stopped."""
        ...

    def places(self, trials: int) -> int:
        """How many of `trials` trials at a rung go on."""
        ...


class _NeverWaits:
    waits: ClassVar[bool] = False

    def rungs(self, rounds: int) -> Iterator[int]:
        return iter(())

    def places(self, trials: int) -> int:
        return trials


@settings
class Fifo(_NeverWaits):
    """Every trial runs to its end."""

    compares: ClassVar[bool] = False
    copies: ClassVar[bool] = False

    def make(self, space: "Space", rounds: int) -> "TrialScheduler":
        from ray.tune.schedulers import FIFOScheduler

        return FIFOScheduler()


@settings
class Halving:
    """Successive halving: at 1, η, η², … times `grace` rounds, all trials wait; of n trials, the best ⌈n/η⌉ go on.

    `sweeps/rungs.py` decides which trials run to the next rung; for Ray Tune, each of them runs to its end.
    """

    waits: ClassVar[bool] = True
    compares: ClassVar[bool] = False
    copies: ClassVar[bool] = False

    grace: Count = 20
    reduction: Annotated[Count, Ge(2)] = 3  # η

    def make(self, space: "Space", rounds: int) -> "TrialScheduler":
        from ray.tune.schedulers import FIFOScheduler

        return FIFOScheduler()

    def rungs(self, rounds: int) -> Iterator[int]:
        rung = self.grace
        while rung < rounds:
            yield rung
            rung *= self.reduction

    def places(self, trials: int) -> int:
        return math.ceil(trials / self.reduction)


@settings
class Asha(_NeverWaits):
    """Successive halving without waiting: at 1, η, η², … times `grace` rounds the best 1/η of the trials go on."""

    compares: ClassVar[bool] = True
    copies: ClassVar[bool] = False

    grace: Count = 20
    reduction: Annotated[Count, Ge(2)] = 3  # η

    def make(self, space: "Space", rounds: int) -> "TrialScheduler":
        from ray.tune.schedulers import ASHAScheduler

        grace = min(self.grace, rounds)
        return ASHAScheduler("round", max_t=rounds, grace_period=grace, reduction_factor=self.reduction)


@settings
class Pbt(_NeverWaits):
    """Population-based training: every `interval` rounds a trial of the last quarter copies one of the first.

    It then perturbs the dimensions' values. All dimensions must be such that a run can go on with another value.
    """

    compares: ClassVar[bool] = True
    copies: ClassVar[bool] = True

    interval: Count = 50

    def make(self, space: "Space", rounds: int) -> "TrialScheduler":
        from ray.tune.schedulers import PopulationBasedTraining

        return PopulationBasedTraining("round", perturbation_interval=self.interval, hyperparam_mutations=space)


SCHEDULERS = Registry(
    "scheduler", "schedulers", Scheduler, {"fifo": Fifo, "halving": Halving, "asha": Asha, "pbt": Pbt}
)

AnyScheduler = Annotated[Scheduler, Component(SCHEDULERS)]
