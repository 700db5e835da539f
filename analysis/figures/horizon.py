"""(1/K) Σ ‖∇Φ(x^k)‖² of FedMBO against K, at fixed n."""

from analysis.claims import Claim
from analysis.reading import Study
from analysis.series import loglog, plot, series
from analysis.speedup import METRIC
from analysis.style import panels, plt

SWEEPS = ("horizon",)


def claims(study: Study) -> list[Claim]:
    data = series(study.sweeps["horizon"], "rounds", METRIC)
    enough = data.enough(sizes=4, span=8)
    return [
        data.slope_claim("FedMBO: (1/K) Σ ‖∇Φ‖² falls like K^(−½) at fixed n", -0.57, -0.43, enough),
        data.ratio_claim("FedMBO against K: as the exact recursion predicts", enough),
    ]


def draw(study: Study) -> plt.Figure:
    figure, (axis,) = panels(1)
    data = series(study.sweeps["horizon"], "rounds", METRIC, "FedMBO")
    plot(axis, data, 0, f"FedMBO: slope {data.slope.value:.2f}")
    loglog(axis, "K, rounds", "(1/K) Σ ‖∇Φ(xᵏ)‖²")
    return figure


def caption(study: Study) -> str:
    n = study.sweeps["horizon"][0].param("clients.cohort_size")
    return f"FedMBO against the number of rounds K, n = {n}, α ∝ √(n/K). Dashed: the exact recursion."
