"""Bias and variance of PHE against N, with what the paper's propositions print."""

import numpy as np
from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim, judged
from fedmbo_ray.analysis.figures.variance import LABELS, bias_p, smallest_of, vector
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy, RecordedTrial
from fedmbo_ray.analysis.series import Series, series
from fedmbo_ray.analysis.style import legend_below, look, panels

SWEEPS = ("estimator",)
TERMS = "algorithm.hypergradient.terms"


def of(study: RecordedStudy, name: str) -> list[RecordedTrial]:
    trials = [trial for trial in study.sweeps["estimator"] if trial.param("algorithm.hypergradient.name") == name]
    return sorted(trials, key=lambda trial: trial.param(TERMS))


def bias(trial: RecordedTrial) -> float:
    """‖E h − ∇̄f‖, exactly."""
    return float(np.linalg.norm(np.subtract(vector(trial, "estimate"), vector(trial, "hypergradient"))))


def bound(trial: RecordedTrial, constant: str) -> float:
    """κ·constant·(1 − 1/κ)^N."""
    kappa = trial.predicted("condition")
    return kappa * trial.predicted(constant) * (1 - 1 / kappa) ** trial.param(TERMS)


def variances(study: RecordedStudy, name: str) -> Series:
    data = series(of(study, name), TERMS, "estimate_variance", LABELS[name])
    n = of(study, name)[0].param("clients.cohort_size")
    return data._replace(samples=[n * each for each in data.samples], predicted=[n * each for each in data.predicted])


def claims(study: RecordedStudy) -> list[Claim]:
    phe = of(study, "phe")
    corrected = [bias(trial) / bound(trial, "upper_gradient_norm") for trial in phe]
    printed = [bias(trial) / bound(trial, "upper_smoothness") for trial in phe]
    p = smallest_of([bias_p(trial, vector(trial, "estimate")) for trial in phe])
    random, whole = variances(study, "phe"), variances(study, "phe_sum")
    limit = phe[0].predicted("column_bound")
    growth, start = np.polyfit(random.sizes, random.predicted, 1)
    measured, reached = np.polyfit(random.sizes, random.means, 1)[0], (limit - start) / growth
    before, last = whole.means[-2:][0], whole.means[-1]
    enough = len(phe) >= 5 and len(phe[0].seeds) >= 16
    return [
        Claim(
            "the mean of PHE is that of a Neumann series of N terms",
            "p ≥ 0.001",
            f"p = {p:.2g}",
            judged(p >= 0.001, True, p),
            p=p,
        ),
        Claim(
            "Proposition 1 with ℓ_{f,0} (as in its proof): bias ≤ ℓ_{f,0}·κ(1 − 1/κ)^N",
            "bias/bound ≤ 1 at every N",
            f"at most {max(corrected):.3f}",
            judged(max(corrected) <= 1),
        ),
        Claim(
            "Proposition 1 with ℓ_{f,1} (as printed): bias ≤ ℓ_{f,1}·κ(1 − 1/κ)^N",
            "bias/bound ≤ 1 at every N",
            f"up to {max(printed):.3f}",
            judged(max(printed) <= 1),
            certified=False,
        ),
        Claim(
            "the variance of PHE grows with N (the constant in Propositions 2 and 3 does not)",
            "growth per term within 20 % of the exact one",
            f"{measured:.3g} per term, exact {growth:.3g}",
            judged(growth > 0 and abs(measured / growth - 1) < 0.2, enough),
        ),
        Claim(
            "Propositions 2 and 3 as printed: the variance of a column stays below σ̃_f², whatever N",
            "the exact variance, which grows with N, never gets there",
            f"{max(random.means) / limit:.2g} of it at N = {random.sizes[-1]}, all from N = {reached:.0f} on",
            judged(growth <= 0),
            certified=False,
        ),
        Claim(
            "the whole sum has less variance, and it stops growing",
            "at most a third of PHE's at the largest N, and within 10 % of that at the N before",
            f"{last:.3g} against {random.means[-1]:.3g} at N = {random.sizes[-1]}; {before:.3g} at the N before",
            judged(last < random.means[-1] / 3 and abs(last / before - 1) < 0.1, enough),
        ),
    ]


def draw(study: RecordedStudy) -> Figure:
    figure, (left, right) = panels(2)
    phe = of(study, "phe")
    terms = [trial.param(TERMS) for trial in phe]
    left.plot(terms, [bias(trial) for trial in phe], label="bias of PHE", **look(0))
    left.plot(
        terms,
        [bound(trial, "upper_gradient_norm") for trial in phe],
        "--",
        label=r"bound with $\ell_{f,0}$",
        color=look(2)["color"],
    )
    left.plot(
        terms,
        [bound(trial, "upper_smoothness") for trial in phe],
        ":",
        label=r"bound with $\ell_{f,1}$, as printed",
        color=look(1)["color"],
    )
    left.set(xlabel="N, terms", yscale="log", title="‖E h − ∇f‖")
    legend_below(left)
    for number, name in enumerate(("phe", "phe_sum")):
        data = variances(study, name)
        right.plot(data.sizes, data.means, label=data.label, linestyle="none", **look(number))
        right.plot(data.sizes, data.predicted, "--", color="#555555", linewidth=1)
    right.set(xlabel="N, terms", title="variance of one column")
    legend_below(right)
    return figure


def caption(study: RecordedStudy) -> str:
    return (
        "Left: the exact bias of PHE against N, the bound of Proposition 1 as its proof has it and as it is printed. "
        "Right: the variance of one column, measured and exact (dashed): a random depth costs variance in "
        "proportion to N."
    )
