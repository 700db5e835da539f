"""(1/K) Σ ‖∇Φ(x^k)‖² against n: the linear speed-up, for FedMBO and for others, and where it ends."""

from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim, judged
from fedmbo_ray.analysis.figures.variance import LABELS, NAME, N
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy
from fedmbo_ray.analysis.series import Series, loglog, plot, series, values_of
from fedmbo_ray.analysis.style import panels

SWEEPS = ("speedup", "estimators", "d_soba", "other_problems", "nonconvex", "beyond")
METRIC = "mean_hypergradient_norm_sq"


def others(study: RecordedStudy) -> list[Series]:
    trials = study.sweeps["estimators"]
    return [
        series(trials, N, METRIC, LABELS[name], algorithm__hypergradient__name=name) for name in values_of(trials, NAME)
    ]


def on_other_problems(study: RecordedStudy) -> list[Series]:
    trials = study.sweeps["other_problems"]
    return [
        series(
            trials,
            N,
            METRIC,
            f"{LABELS[name]}, problem {seed}",
            algorithm__hypergradient__name=name,
            problem__seed=seed,
        )
        for seed in values_of(trials, "problem.seed")
        for name in values_of(trials, NAME)
    ]


def claims(study: RecordedStudy) -> list[Claim]:
    phe = series(study.sweeps["speedup"], N, METRIC, LABELS["phe"])
    soba = series(study.sweeps["d_soba"], N, METRIC, "D-SOBA")
    nonconvex = series(study.sweeps["nonconvex"], N, METRIC)
    beyond = series(study.sweeps["beyond"], N, METRIC)
    said = []
    for each in [phe, *on_other_problems(study), *others(study), soba]:
        where = f"{each.label}: " if each is not phe else "FedMBO: "
        if each.label.startswith("IHGP") and "sum" not in each.label:
            said.append(
                Claim(
                    f"{where}no speed-up in n",
                    "95 % interval of the slope above −0.2",
                    str(each.slope),
                    judged(each.slope.low > -0.2, each.enough()),
                )
            )
        elif "sum" in each.label or each is soba:
            off = f"{each.slope}, predicted {each.predicted_slope:.3f}"
            near = each.slope.low - 0.02 <= each.predicted_slope <= each.slope.high + 0.02
            rule = "predicted slope in the 95 % interval, ± 0.02"
            said.append(Claim(f"{where}speed-up in n as predicted", rule, off, judged(near, each.enough())))
        else:
            said.append(each.slope_claim(f"{where}linear speed-up in n (theory: −½)", -0.56, -0.44, each.enough()))
        said.append(each.ratio_claim(f"{where}as the exact recursion predicts", each.enough()))
    enough = nonconvex.enough(seeds=16)
    said.append(nonconvex.slope_claim("FedMBO, Φ not convex: linear speed-up in n", -0.6, -0.4, enough))
    said.append(
        Claim(
            "control: beyond the regime, α as large as it may be, more clients hardly help",
            "95 % interval of the slope above −0.35",
            f"{beyond.slope}, predicted {beyond.predicted_slope:.3f}",
            judged(beyond.slope.low > -0.35, beyond.enough(seeds=16, sizes=3, span=16)),
        )
    )
    return said


def draw(study: RecordedStudy) -> Figure:
    figure, (left, right) = panels(2)
    phe = series(study.sweeps["speedup"], N, METRIC, "FedMBO (PHE)")
    soba = series(study.sweeps["d_soba"], N, METRIC, "D-SOBA")
    beyond = series(study.sweeps["beyond"], N, METRIC, "FedMBO, α held fixed")
    for number, each in enumerate([phe, *others(study), soba, beyond]):
        plot(left, each, number, f"{each.label}: {each.slope.value:.2f}")
    loglog(left, "n, clients per communication", "(1/K) Σ ‖∇Φ(xᵏ)‖²", "one problem")
    nonconvex = series(study.sweeps["nonconvex"], N, METRIC, "PHE, Φ not convex")
    for number, each in enumerate([*on_other_problems(study), nonconvex]):
        plot(right, each, number, f"{each.label}: {each.slope.value:.2f}")
    loglog(right, "n, clients per communication", "", "others")
    return figure


def caption(study: RecordedStudy) -> str:
    rounds = study.sweeps["speedup"][0].param("rounds")
    return (
        f"Mean squared hypergradient over K rounds (FedMBO on the left: {rounds}) against n with α ∝ √(n/K), or with α "
        "held fixed, and its slope. Dashed: the exact second-moment recursion, which nothing was fitted to. Right: "
        "other draws of the problem, and one that is not convex."
    )
