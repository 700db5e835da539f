"""Rounds and communications of FedMBO on MNIST until a test accuracy, against n."""

import numpy as np
from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim, judged
from fedmbo_ray.analysis.learning import Curves, curves
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy
from fedmbo_ray.analysis.series import Series, loglog, plot
from fedmbo_ray.analysis.style import panels

SWEEPS = ("mnist",)
TARGET = 0.93
N = "clients.cohort_size"
BUDGETS = {"round": "rounds", "communications": "communications", "samples": "samples drawn"}


def found(study: RecordedStudy, x: str) -> dict[int, Curves]:
    trials = sorted(study.sweeps["mnist"], key=lambda trial: trial.param(N))
    return {trial.param(N): curves(trial, x, "test_accuracy", f"n = {trial.param(N)}") for trial in trials}


def data_of(study: RecordedStudy) -> str:
    return study.sweeps["mnist"][0].param("data.name")


def target(study: RecordedStudy) -> float:
    """93 %, or what all seeds have come to if less was run."""
    return min(TARGET, *(min(ys.max() for _, ys in each.runs) for each in found(study, "round").values()))


def reached(study: RecordedStudy, x: str) -> Series:
    every = found(study, x)
    return Series(
        BUDGETS[x], list(every), [each.reached(target(study)) for each in every.values()], [np.nan] * len(every)
    )


def claims(study: RecordedStudy) -> list[Claim]:
    rounds = reached(study, "round")
    enough = rounds.enough(seeds=5, sizes=4, span=8) and target(study) == TARGET
    said = f"slope {rounds.slope}; linear would be −1"
    text = f"FedMBO on {data_of(study)}: fewer rounds to {target(study):.0%} accuracy with more clients"
    rule = "95 % interval of the slope of rounds in n below 0"
    return [Claim(text, rule, said, judged(rounds.slope.high < 0, enough), certified=False)]


def draw(study: RecordedStudy) -> Figure:
    figure, axes = panels(3)
    for axis, (x, name) in zip(axes, BUDGETS.items(), strict=True):
        data = reached(study, x)
        plot(axis, data, 0, f"slope {data.slope.value:.2f}")
        loglog(axis, "n, clients per communication", name, f"to {target(study):.0%} accuracy")
    return figure


def caption(study: RecordedStudy) -> str:
    return (
        f"FedMBO on {data_of(study)}, two digits per client, α ∝ √n: rounds, communications and samples until a test "
        f"accuracy of {target(study):.0%} is first seen, with 95 % bootstrap intervals over seeds."
    )
