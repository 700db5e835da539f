"""One step of minibatch SGD from y*, against the batch size: what the inner lemma says, and what it should say."""

from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim, judged
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy, RecordedTrial
from fedmbo_ray.analysis.series import Series, plot, series
from fedmbo_ray.analysis.style import legend_below, panels, plain_ticks

SWEEPS = ("inner",)
SIZE = "algorithm.lower.batch_size"


def data(study: RecordedStudy, replace: str) -> Series:
    how = "with" if replace == "True" else "without"
    return series(study.sweeps["inner"], SIZE, "lower_move_sq", f"{how} replacement", clients__replace=replace)


def printed(trial: RecordedTrial) -> float:
    """4β²(σ_{g,1}² + σ_g²)/(nS): the lemma's noise term, with its factor."""
    beta, n, S = trial.param("algorithm.lower.step_size.value"), trial.param("clients.cohort_size"), trial.param(SIZE)
    return 4 * beta**2 * (trial.predicted("sample_variance") + trial.predicted("client_variance")) / (n * S)


def claims(study: RecordedStudy) -> list[Claim]:
    said = []
    for replace in ("True", "False"):
        each = data(study, replace)
        text = f"one inner step from y*, {each.label}: error as the corrected formula has it"
        said.append(each.ratio_claim(text, len(each.samples[0]) >= 16))
    trials = [trial for trial in study.sweeps["inner"] if trial.param("clients.replace") == "True"]
    ratios = [float(trial.lasts("lower_move_sq").mean()) / printed(trial) for trial in trials]
    said.append(
        Claim(
            "inner lemma as printed: error ≤ 4β²(σ_{g,1}² + σ_g²)/(nS)",
            "error/bound ≤ 1 at every S",
            f"up to {max(ratios):.3g}",
            judged(max(ratios) <= 1),
            certified=False,
        )
    )
    return said


def draw(study: RecordedStudy) -> Figure:
    figure, (axis,) = panels(1)
    for number, replace in enumerate(("True", "False")):
        plot(axis, data(study, replace), number)
    trials = sorted(study.sweeps["inner"], key=lambda trial: trial.param(SIZE))
    axis.plot(
        [trial.param(SIZE) for trial in trials],
        [printed(trial) for trial in trials],
        ":",
        color="#D55E00",
        label="bound as printed",
    )
    axis.set(xscale="log", yscale="log", xlabel="S, samples per client", ylabel="E‖y − y*‖² after a step")
    plain_ticks(axis)
    legend_below(axis)
    return figure


def caption(study: RecordedStudy) -> str:
    return (
        "One step of minibatch SGD from y*. More samples per client average out their noise, not what clients differ "
        "by: the error stops falling (dashed: exact), where the lemma as printed lets it go to zero."
    )
