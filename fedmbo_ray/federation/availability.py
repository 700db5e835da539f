"""Clients that drop out or come late, simulated when a cohort is sampled."""

from collections.abc import Callable
from typing import Annotated, Literal, Protocol

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from fedmbo_ray.core.settings import Positive, settings
from fedmbo_ray.data.batches import ClientIds
from fedmbo_ray.federation.meter import Meter

Pick = Callable[[int, ClientIds], ClientIds]  # how many, and whom not to take (without replacement)
NOBODY = np.empty(0, dtype=np.int64)


class Availability(Protocol):
    """Turns the wish for `size` clients into the cohort that answers; at least one client always does.

    With `complete`, no slot may be left out. `wait` is how long a cohort that is asked again takes.
    """

    def cohort(
        self, rng: np.random.Generator, pick: Pick, size: int, meter: Meter, complete: bool = False
    ) -> ClientIds: ...

    def wait(self, rng: np.random.Generator, size: int) -> float: ...


class AlwaysAvailable:
    """Every client answers at once."""

    def cohort(
        self, rng: np.random.Generator, pick: Pick, size: int, meter: Meter, complete: bool = False
    ) -> ClientIds:
        return pick(size, NOBODY)

    def wait(self, rng: np.random.Generator, size: int) -> float:
        return 0.0


@settings
class Unreliable:
    """A client drops out with probability `dropout`; with probability `straggle` it answers late.

    A late answer takes a time from `delay` (seconds of mean `delay_mean`); later than `deadline`, the client
    counts as dropped. A dropped slot is drawn again, possibly the same client (`resample`), or left out (`omit`).
    Nothing sleeps: the record's `waited` adds up the slowest answer of every cohort.
    """

    dropout: Annotated[float, Ge(0), Le(0.99)] = 0.0
    straggle: Annotated[float, Ge(0), Le(0.99)] = 0.0
    delay: Literal["constant", "exponential", "pareto"] = "exponential"
    delay_mean: Positive = 1.0
    deadline: Positive | None = None
    dropped: Literal["resample", "omit"] = "resample"

    def __post_init__(self) -> None:
        if self.straggle and self.delay == "constant" and self.deadline and self.delay_mean > self.deadline:
            raise ValueError(
                "with constant delays `delay_mean <= deadline` must hold (else raise dropout), "
                f"but got delay_mean={self.delay_mean}, deadline={self.deadline}"
            )

    def cohort(
        self, rng: np.random.Generator, pick: Pick, size: int, meter: Meter, complete: bool = False
    ) -> ClientIds:
        cohort = pick(size, NOBODY)
        delays = self.delays(rng, size)
        while np.isinf(delays).any():
            lost = np.isinf(delays)
            meter.dropped += int(lost.sum())
            if self.dropped == "omit" and not complete and not lost.all():
                cohort, delays = cohort[~lost], delays[~lost]
            else:
                cohort[lost] = pick(int(lost.sum()), cohort[~lost])
                delays[lost] = self.delays(rng, int(lost.sum()))
        meter.waited += float(delays.max())
        return cohort

    def wait(self, rng: np.random.Generator, size: int) -> float:
        """The slowest of `size` clients that answer, at the latest at the deadline."""
        delays = self.delays(rng, size)
        return float(delays[np.isfinite(delays)].max(initial=0.0))

    def delays(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Seconds until each of `size` clients answers; inf for one that does not."""
        laws: dict[str, Callable[[], NDArray[np.float64]]] = {
            "constant": lambda: np.full(size, self.delay_mean),
            "exponential": lambda: rng.exponential(self.delay_mean, size),
            "pareto": lambda: rng.pareto(2.0, size) * self.delay_mean,  # tail index 2: infinite variance
        }
        delays = np.where(rng.random(size) < self.straggle, laws[self.delay](), 0.0)
        late = delays > (self.deadline or np.inf)
        return np.where((rng.random(size) < self.dropout) | late, np.inf, delays)
