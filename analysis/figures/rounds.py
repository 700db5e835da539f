"""Rounds of FedMBO until the mean squared hypergradient so far is ε, against n."""

import numpy as np
from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim, judged
from fedmbo_ray.analysis.figures.speedup import METRIC
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy, RecordedTrial, Values
from fedmbo_ray.analysis.series import loglog
from fedmbo_ray.analysis.statistics import RESAMPLES, Interval, slope
from fedmbo_ray.analysis.style import look, panels

SWEEPS = ("rounds",)
EPSILON = 0.08


def crossing(rounds: Values, means: Values) -> float:
    """The first k at which a mean over k rounds, known at some, is ε; nan if it is not reached."""
    every = np.arange(1, int(rounds[-1]) + 1)
    sums = np.interp(every, rounds, rounds * means)
    reached = np.flatnonzero(sums / every <= EPSILON)
    return float(every[reached[0]]) if len(reached) else np.nan


def curves(trial: RecordedTrial) -> tuple[Values, Values]:
    """Rounds, and what each seed has in them."""
    found = [seed.history(METRIC) for seed in trial.seeds]
    rounds = sorted(set.intersection(*(set(each) for each in found)) - {0})
    return np.array(rounds, dtype=float), np.array([[each[k] for k in rounds] for each in found])


def measured(study: RecordedStudy) -> tuple[list[int], Values, Values, list[float]]:
    """n; K(ε) of the mean over seeds; of resamples of the seeds; and predicted."""
    trials = sorted(study.sweeps["rounds"], key=lambda trial: trial.param("clients.cohort_size"))
    rng, found, resampled, predicted = np.random.default_rng(0), [], [], []
    for trial in trials:
        rounds, values = curves(trial)
        picks = rng.integers(len(values), size=(RESAMPLES // 4, len(values)))
        found.append(crossing(rounds, values.mean(0)))
        resampled.append([crossing(rounds, values[pick].mean(0)) for pick in picks])
        exact = trial.run.history(f"predicted_{METRIC}")
        steps = sorted(exact)
        predicted.append(crossing(np.array(steps, dtype=float), np.array([exact[step] for step in steps])))
    return [trial.param("clients.cohort_size") for trial in trials], np.array(found), np.array(resampled), predicted


def interval(sizes: list[int], found: Values, resampled: Values) -> Interval:
    x = np.log(sizes)
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    low, high = np.nanpercentile(weights @ np.log(resampled), [2.5, 97.5])
    return Interval(slope(sizes, found), float(low), float(high))


def claims(study: RecordedStudy) -> list[Claim]:
    sizes, found, resampled, predicted = measured(study)
    all_there = not np.isnan(found).any()
    enough = len(study.sweeps["rounds"][0].seeds) >= 16 and len(sizes) >= 6
    if not all_there:
        return [Claim("FedMBO: K(ε) ∝ 1/n", "ε is reached at every n", "it is not", judged(False, enough))]
    here, exact = interval(sizes, found, resampled), slope(sizes, predicted)
    rule = f"slope within 0.06 of the predicted {exact:.3f}, and below −0.85"
    holds = abs(here.value - exact) < 0.06 and here.value < -0.85
    return [Claim("FedMBO: rounds to ε fall like 1/n", rule, str(here), judged(holds, enough))]


def draw(study: RecordedStudy) -> Figure:
    sizes, found, resampled, predicted = measured(study)
    low, high = np.nanpercentile(resampled, [2.5, 97.5], axis=1)
    figure, (axis,) = panels(1)
    errors = np.maximum([found - low, high - found], 0)
    axis.errorbar(sizes, found, errors, capsize=2, label=f"FedMBO: slope {slope(sizes, found):.2f}", **look(0))
    axis.plot(sizes, predicted, "--", color="#555555", linewidth=1)
    loglog(axis, "n, clients per communication", f"rounds until the mean is {EPSILON}")
    return figure


def caption(study: RecordedStudy) -> str:
    return (
        f"Rounds of FedMBO until the mean of ‖∇Φ‖² over the rounds so far is ε = {EPSILON}, with α ∝ nε: n times the "
        "clients, n times fewer rounds. Dashed: the exact recursion."
    )
