"""Slopes with intervals, and comparisons of runs that share their seeds."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import permutation_test

Values = NDArray[np.float64]
RESAMPLES = 4000


class Interval(NamedTuple):
    value: float
    low: float
    high: float

    def inside(self, low: float, high: float) -> bool:
        return low <= self.low and self.high <= high

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def slope(sizes: ArrayLike, values: ArrayLike) -> float:
    """Of log(values) on log(sizes); nan of a single size."""
    if len(np.unique(sizes)) < 2:
        return np.nan
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def slope_interval(sizes: ArrayLike, samples: list[Values], level: float = 0.95) -> Interval:
    """The slope of the log of the means of `samples`, one set for each size, with a bootstrap interval over them."""
    if len(np.unique(sizes)) < 2:
        return Interval(np.nan, np.nan, np.nan)
    x = np.log(np.asarray(sizes, dtype=float))
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    means = np.stack([resampled_means(values, number) for number, values in enumerate(samples)])
    slopes = weights @ np.log(means)
    tail = 50 * (1 - level)
    low, high = np.percentile(slopes, [tail, 100 - tail])
    return Interval(slope(sizes, [values.mean() for values in samples]), float(low), float(high))


def resampled_means(values: Values, number: int) -> Values:
    """Means of resamples of the values; those of another number are drawn independently."""
    rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(number, len(values))))
    return values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)


def mean_interval(values: Values, level: float = 0.95) -> Interval:
    tail = 50 * (1 - level)
    low, high = np.percentile(resampled_means(values, 0), [tail, 100 - tail])
    return Interval(float(values.mean()), float(low), float(high))


class Difference(NamedTuple):
    """By how much, on average over seeds, one is above the other."""

    mean: float
    p: float  # of a mean as large by chance, if signs were drawn by coins (exact sign-flip test)


def paired(above: Values, below: Values) -> Difference:
    """Whether `above` is: both have a value for each of the same seeds."""
    differences = above - below
    if np.isnan(differences).any() or len(differences) < 2:
        return Difference(float(differences.mean()), float("nan"))
    test = permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        alternative="greater",
        n_resamples=2**14,
        vectorized=False,
        random_state=np.random.default_rng(0),
    )
    return Difference(float(differences.mean()), float(test.pvalue))


def holm(p_values: list[float]) -> list[float]:
    """Adjusted for their number, in their order; nan stays."""
    order = sorted(range(len(p_values)), key=lambda i: (np.isnan(p_values[i]), p_values[i]))
    adjusted, worst = list(p_values), 0.0
    count = sum(not np.isnan(p) for p in p_values)
    for rank, i in enumerate(order[:count]):
        worst = max(worst, min(1.0, (count - rank) * p_values[i]))
        adjusted[i] = worst
    return adjusted
