"""Learning curves of trials: bands over seeds, what is reached for a budget, and orderings tested seed by seed."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from analysis.claims import Claim, judged
from analysis.reading import Trial, Values
from analysis.statistics import holm, paired
from analysis.style import COLOURS, plt

GRID = 200
AXES = {
    "communications": "communications",
    "data_epochs": "data epochs",
    "floats": "floats sent per client taking part",
    "samples": "samples drawn",
}
SIGNIFICANT = 0.05


class Curves(NamedTuple):
    """A figure of every seed of a trial, against a budget that all seeds have used."""

    label: str
    budgets: Values
    values: Values  # seeds × budgets

    def at(self, budget: float) -> Values:
        """Of every seed."""
        return np.array([np.interp(budget, self.budgets, row) for row in self.values])

    def average(self, budget: float) -> Values:
        """Of every seed, the mean over its curve up to a budget."""
        grid = np.linspace(self.budgets[0], budget, GRID)
        return np.array([np.interp(grid, self.budgets, row).mean() for row in self.values])

    def reached(self, value: float) -> Values:
        """Of every seed, the budget at which it first has the value; nan if it never has."""
        return np.array([_first(self.budgets, row, value) for row in self.values])


def _first(budgets: Values, row: Values, value: float) -> float:
    above = np.flatnonzero(row >= value)
    return float(budgets[above[0]]) if len(above) else np.nan


def curves(trial: Trial, x: str, y: str, label: str) -> Curves:
    found = trial.curves(x, y)
    budgets = np.linspace(max(xs[0] for xs, _ in found), min(xs[-1] for xs, _ in found), GRID)
    return Curves(label, budgets, np.array([np.interp(budgets, xs, ys) for xs, ys in found]))


def band(axis: plt.Axes, each: Curves, number: int) -> None:
    """Mean and standard deviation over seeds."""
    mean, spread = each.values.mean(0), each.values.std(0, ddof=1) if len(each.values) > 1 else 0.0
    colour, style = COLOURS[number % len(COLOURS)], "-" if number < len(COLOURS) else "--"
    axis.plot(each.budgets, mean, color=colour, linestyle=style, label=each.label)
    axis.fill_between(each.budgets, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)


Statistic = Callable[[Curves], Values]


def orderings(
    pairs: list[tuple[Curves, Curves]], statistic: Statistic, what: str, seeds: int, larger: bool = True
) -> list[Claim]:
    """For each pair whether the first is better, seed by seed; p-values are adjusted for the number of pairs."""
    sign = 1 if larger else -1
    tests = [paired(sign * statistic(better), sign * statistic(worse)) for better, worse in pairs]
    claims = []
    for (better, worse), p in zip(pairs, holm([test.p for test in tests]), strict=True):
        found = f"{statistic(better).mean():.4g} against {statistic(worse).mean():.4g}, p = {p:.2g}"
        claims.append(
            Claim(
                f"{better.label} is better than {worse.label}: {what}",
                f"paired sign-flip test over {seeds} seeds, p < {SIGNIFICANT} (Holm)",
                found,
                judged(p < SIGNIFICANT, len(pairs) * 0.5**seeds < SIGNIFICANT),  # fewer seeds can never tell
                certified=False,
                p=p,
            )
        )
    return claims


def worth_seeing(shown: list[Curves]) -> tuple[float, float]:
    """How high curves get that grow from the ground, and how far most can be compared: where axes may begin and end."""
    start = min(np.quantile(each.values.mean(0), 0.02) for each in shown)
    return float(start), min(3 * common(shown), max(each.budgets[-1] for each in shown))


def common(found: list[Curves]) -> float:
    """The budget that all have used."""
    return float(min(each.budgets[-1] for each in found))
