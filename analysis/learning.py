"""Learning curves of trials: bands over seeds, what is reached for a budget, and orderings tested seed by seed."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim, judged
from fedmbo_ray.analysis.mlflow_reader import RecordedTrial, Values
from fedmbo_ray.analysis.statistics import holm, paired
from fedmbo_ray.analysis.style import COLOURS, legend_below, panels, styled

GRID = 200
AXES = {
    "communications": "communications",
    "data_epochs": "data epochs",
    "floats": "floats sent",
    "samples": "samples drawn",
}
SIGNIFICANT = 0.05


class Curves(NamedTuple):
    """A figure of every seed of a trial against what was spent, record by record, the one of round 0 first."""

    label: str
    runs: list[tuple[Values, Values]]

    @property
    def end(self) -> float:
        """What all seeds have spent."""
        return float(min(xs[-1] for xs, _ in self.runs))

    def at(self, budgets: float | Values) -> Values:
        """Of every seed, between two records on the line through both."""
        return np.array([np.interp(budgets, xs, ys) for xs, ys in self.runs])

    def average(self, budget: float) -> Values:
        """Of every seed, the mean over its curve up to a budget."""
        return self.at(np.linspace(0.0, budget, GRID)).mean(1)

    def reached(self, value: float) -> Values:
        """Of every seed, the budget at which it first has the value; nan if it never has."""
        return np.array([first(xs, ys, value) for xs, ys in self.runs])


def first(xs: Values, ys: Values, value: float) -> float:
    above = np.flatnonzero(ys >= value)
    if not len(above):
        return np.nan
    i = above[0]
    return float(np.interp(value, ys[i - 1 : i + 1], xs[i - 1 : i + 1]) if i else xs[0])


def curves(trial: RecordedTrial, x: str, y: str, label: str) -> Curves:
    return Curves(label, trial.curves(x, y))


def band(axis: Axes, each: Curves, number: int, log: bool = False) -> None:
    """Mean and standard deviation over seeds; on a logarithmic axis from the first record after round 0 on."""
    spaced, start = (np.geomspace, max(xs[1] for xs, _ in each.runs)) if log else (np.linspace, 0.0)
    budgets = spaced(start, each.end, GRID)
    values = each.at(budgets)
    mean, spread = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else 0.0
    colour, style = COLOURS[number % len(COLOURS)], "-" if number < len(COLOURS) else "--"
    axis.plot(budgets, mean, color=colour, linestyle=style, label=each.label)
    axis.fill_between(budgets, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)


@styled
def draw_curves(trials: list[tuple[str, list[tuple[list[float], list[float]]]]], x: str, y: str) -> Figure:
    """One panel of named trials, each with a curve for every seed."""
    figure, (axis,) = panels(1)
    for number, (label, runs) in enumerate(trials):
        band(axis, Curves(label, [(np.array(xs), np.array(ys)) for xs, ys in runs]), number)
    axis.set(xlabel=AXES.get(x, x), ylabel=y)
    legend_below(axis)
    return figure


Statistic = Callable[[Curves], Values]


def orderings(
    pairs: list[tuple[Curves, Curves]], statistic: Statistic, what: str, seeds: int, larger: bool = True
) -> list[Claim]:
    """For each pair whether the first is better, seed by seed; p-values are adjusted for the number of pairs."""
    sign = 1 if larger else -1
    tests = [paired(sign * statistic(better), sign * statistic(worse)) for better, worse in pairs]
    claims, enough = [], len(pairs) * 0.5**seeds < SIGNIFICANT  # fewer seeds can never tell
    for (better, worse), p in zip(pairs, holm([test.p for test in tests]), strict=True):
        found = f"{statistic(better).mean():.4g} against {statistic(worse).mean():.4g}, p = {p:.2g}"
        claims.append(
            Claim(
                f"{better.label} is better than {worse.label}: {what}",
                f"paired sign-flip test over {seeds} seeds, p < {SIGNIFICANT} (Holm)",
                found,
                judged(p < SIGNIFICANT, enough, p),
                certified=False,
                p=p,
            )
        )
    return claims


def mean_curve(each: Curves) -> Values:
    """Over seeds, as far as all have come."""
    return each.at(np.linspace(0.0, each.end, GRID)).mean(0)


def worth_seeing(shown: list[Curves]) -> tuple[float, float]:
    """How high curves get that grow from the ground, and how far most can be compared: where axes may begin and end."""
    start = min(np.quantile(mean_curve(each), 0.02) for each in shown)
    return float(start), min(3 * common(shown), max(each.end for each in shown))


def common(found: list[Curves]) -> float:
    """The budget that all have used."""
    return min(each.end for each in found)
