"""(1/K) Σ ‖∇Φ(x^k)‖² of FedMBO against K, at fixed n."""

from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim
from fedmbo_ray.analysis.figures.speedup import METRIC
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy
from fedmbo_ray.analysis.series import loglog, plot, series
from fedmbo_ray.analysis.style import panels

SWEEPS = ("horizon",)


def claims(study: RecordedStudy) -> list[Claim]:
    data = series(study.sweeps["horizon"], "rounds", METRIC)
    enough = data.enough(sizes=4, span=8)
    return [
        data.slope_claim("FedMBO: (1/K) Σ ‖∇Φ‖² falls like K^(−½) at fixed n", -0.57, -0.43, enough),
        data.ratio_claim("FedMBO against K: as the exact recursion predicts", enough),
    ]


def draw(study: RecordedStudy) -> Figure:
    figure, (axis,) = panels(1)
    data = series(study.sweeps["horizon"], "rounds", METRIC, "FedMBO")
    plot(axis, data, 0, f"FedMBO: slope {data.slope.value:.2f}")
    loglog(axis, "K, rounds", "(1/K) Σ ‖∇Φ(xᵏ)‖²")
    return figure


def caption(study: RecordedStudy) -> str:
    n = study.sweeps["horizon"][0].param("clients.cohort_size")
    return f"FedMBO against the number of rounds K, n = {n}, α ∝ √(n/K). Dashed: the exact recursion."
