"""What the three case studies of Figure 2 have in common: one column of it, and what the paper says about it."""

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim
from fedmbo_ray.analysis.learning import AXES, Curves, band, common, curves, orderings, worth_seeing
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy, RecordedTrial
from fedmbo_ray.analysis.style import panels, shared_legend

TrialLabel = Callable[[RecordedTrial], str]
BUDGETS = ("data_epochs", "communications")


def found(study: RecordedStudy, x: str, label: TrialLabel) -> list[Curves]:
    trials = study.sweeps[study.name]
    return [curves(trial, x, "test_accuracy", label(trial)) for trial in trials]


def column(study: RecordedStudy, axes: list[Axes], label: TrialLabel) -> None:
    """Test accuracy against data epochs, and below it against communications."""
    for axis, x in zip(axes, BUDGETS, strict=True):
        shown = found(study, x, label)
        for number, each in enumerate(shown):
            band(axis, each, number)
        start, end = worth_seeing(shown)
        axis.set(xlabel=AXES[x], ylabel="test accuracy", xlim=(0, end), ylim=(start, 1.0))


def draw(study: RecordedStudy, label: TrialLabel) -> Figure:
    figure, axes = panels(2)
    column(study, axes, label)
    shared_legend(figure, axes[0])
    return figure


def claims(
    study: RecordedStudy, label: TrialLabel, pairs: list[tuple[int, int]], x: str = "communications"
) -> list[Claim]:
    """Each pair is of trials' numbers: the better first. What is compared is the mean accuracy over the curve."""
    each = found(study, x, label)
    budget = common(each)
    there = [(each[a], each[b]) for a, b in pairs if max(a, b) < len(each)]
    what = f"mean accuracy over the first {budget:.3g} {AXES[x]}"
    return orderings(there, lambda one: one.average(budget), what, study.seeds)
