"""A figure of several trials against one of their parameters: means over seeds, slopes, and what theory predicts."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from fedmbo_ray.analysis.claims import Claim, judged
from fedmbo_ray.analysis.mlflow_reader import Param, RecordedTrial, Values
from fedmbo_ray.analysis.statistics import Interval, mean_interval, slope, slope_interval
from fedmbo_ray.analysis.style import legend_below, look, plain_ticks

ENOUGH_SEEDS, ENOUGH_SIZES, ENOUGH_SPAN = 32, 6, 32


class Series(NamedTuple):
    """Samples of one figure, one set for each size; `predicted` is nan where theory says nothing."""

    label: str
    sizes: list[float]
    samples: list[Values]
    predicted: list[float]

    @property
    def means(self) -> list[float]:
        return [float(values.mean()) for values in self.samples]

    @property
    def slope(self) -> Interval:
        return slope_interval(self.sizes, self.samples)

    @property
    def predicted_slope(self) -> float:
        return slope(self.sizes, self.predicted)

    @property
    def ratios(self) -> list[float]:
        return [mean / expected for mean, expected in zip(self.means, self.predicted, strict=True)]

    def enough(self, seeds: int = ENOUGH_SEEDS, sizes: int = ENOUGH_SIZES, span: float = ENOUGH_SPAN) -> bool:
        """Whether a slope can be told from it."""
        fewest = min(len(values) for values in self.samples)
        return fewest >= seeds and len(self.sizes) >= sizes and max(self.sizes) / min(self.sizes) >= span

    def slope_claim(self, text: str, low: float, high: float, enough: bool) -> Claim:
        rule = f"95 % interval of the slope inside [{low}, {high}]"
        return Claim(text, rule, str(self.slope), judged(self.slope.inside(low, high), enough))

    def ratio_claim(self, text: str, enough: bool) -> Claim:
        low, high = min(self.ratios), max(self.ratios)
        said = f"measured/predicted from {low:.3f} to {high:.3f}"
        return Claim(
            text,
            "measured/predicted in [0.9, 1.15] at every point",
            said,
            judged(low >= 0.9 and high <= 1.15, enough, *self.ratios),
        )


def series(trials: list[RecordedTrial], x: str, metric: str, label: str = "", **where: object) -> Series:
    """The trials whose parameters are as in `where` (with __ for dots)."""
    chosen = [
        trial for trial in trials if all(trial.param(key.replace("__", ".")) == value for key, value in where.items())
    ]
    chosen.sort(key=lambda trial: trial.param(x))
    return Series(
        label,
        [trial.param(x) for trial in chosen],
        [trial.lasts(metric) for trial in chosen],
        [trial.predicted(metric) for trial in chosen],
    )


def values_of(trials: list[RecordedTrial], path: str) -> list[Param]:
    """The values that a parameter has, each once."""
    return list(dict.fromkeys(trial.param(path) for trial in trials))


def plot(axis: Axes, data: Series, number: int, label: str | None = None) -> None:
    """Means with bootstrap intervals, and the prediction as a dashed line."""
    intervals = [mean_interval(values) for values in data.samples]
    errors = np.array([[each.value - each.low, each.high - each.value] for each in intervals]).T
    axis.errorbar(data.sizes, data.means, errors, label=label or data.label, linestyle="-", capsize=2, **look(number))
    if not np.isnan(data.predicted).any():
        axis.plot(data.sizes, data.predicted, linestyle="--", color="#555555", linewidth=1, zorder=3)


def loglog(axis: Axes, x: str, y: str, title: str = "") -> None:
    axis.set(xscale="log", yscale="log", xlabel=x, ylabel=y, title=title)
    plain_ticks(axis)
    legend_below(axis)
