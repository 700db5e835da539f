"""Figure 3: pairs of hypergradient estimator and lower solver, each at its best step sizes."""

from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim
from fedmbo_ray.analysis.learning import AXES, Curves, band, common, curves, mean_curve, orderings, worth_seeing
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy, RecordedTrial
from fedmbo_ray.analysis.style import panels, plain_values, shared_legend

SWEEPS, ENDINGS = ("comparison",), ("finished", "diverged")
ESTIMATORS = {"phe": "PHE", "ihgp": "IHGP"}
LOWER = {"minibatch_sgd": "minibatch SGD", "fedsvrg": "FedSVRG", "fedavg": "FedAvg"}
OURS = "PHE + minibatch SGD"
PANELS = (("communications", "upper_loss"), ("data_epochs", "upper_loss"), ("communications", "test_accuracy"))


def label(trial: RecordedTrial) -> str:
    estimator, lower = (trial.param(f"algorithm.{part}.name") for part in ("hypergradient", "lower"))
    return f"{ESTIMATORS[estimator]} + {LOWER[lower]}"


def found(study: RecordedStudy, x: str, y: str) -> dict[str, Curves]:
    """Of the pairs that did not diverge."""
    trials = [trial for trial in study.sweeps["comparison"] if trial.status == "finished"]
    return {label(trial): curves(trial, x, y, label(trial)) for trial in trials}


def claims(study: RecordedStudy) -> list[Claim]:
    loss, epochs, accuracy = (found(study, x, y) for x, y in PANELS)
    others = [name for name in loss if name != OURS]
    said = []
    if OURS in loss:
        budget = common(list(loss.values()))
        what = f"mean upper loss over the first {budget:.3g} communications"
        pairs = [(loss[OURS], loss[name]) for name in others]
        said += orderings(pairs, lambda one: one.average(budget), what, study.seeds, larger=False)
        best = [(accuracy[OURS], accuracy[name]) for name in others]
        said += orderings(best, lambda one: one.at(budget), f"accuracy at {budget:.3g} communications", study.seeds)
    budget = common(list(epochs.values()))
    wanted = [
        (f"{above} + {good}", f"{above} + FedAvg") for above in ("PHE", "IHGP") for good in ("minibatch SGD", "FedSVRG")
    ]
    there = [(epochs[good], epochs[bad]) for good, bad in wanted if good in epochs and bad in epochs]
    what = f"mean upper loss over the first {budget:.3g} data epochs"
    return said + orderings(there, lambda one: one.average(budget), what, study.seeds, larger=False)


def draw(study: RecordedStudy) -> Figure:
    figure, axes = panels(3)
    for axis, (x, y) in zip(axes, PANELS, strict=True):
        shown = list(found(study, x, y).values())
        for number, each in enumerate(shown):
            band(axis, each, number)
        start, end = worth_seeing(shown)
        if y == "test_accuracy":
            axis.set(xlabel=AXES[x], ylabel="test accuracy", xlim=(0, end), ylim=(start, 1.0))
        else:  # a pair that explodes on some seeds leaves the picture
            means = [mean_curve(each) for each in shown]
            limits = (0.8 * min(mean.min() for mean in means), 1.2 * max(mean[0] for mean in means))
            axis.set(xlabel=AXES[x], ylabel="upper loss", xlim=(0, end), yscale="log", ylim=limits)
            plain_values(axis)
    shared_legend(figure, axes[0])
    return figure


def caption(study: RecordedStudy) -> str:
    trial = study.sweeps["comparison"][0]
    m, n, data = (trial.param(f"{path}") for path in ("clients.num_clients", "clients.cohort_size", "data.name"))
    return (
        f"{data}, label-sorted over {m} clients, {n} per communication; every pair at the step sizes that were best "
        "for it among equally many. Mean and standard deviation over seeds; a pair that explodes on some seeds leaves "
        "the picture."
    )
