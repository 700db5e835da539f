"""Table 1 made empirical: what every method reaches for the same communications, floats and samples."""

from functools import partial

from matplotlib.figure import Figure

from fedmbo_ray.analysis.claims import Claim, Table
from fedmbo_ray.analysis.learning import AXES, Curves, band, common, orderings
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy, RecordedTrial, Values
from fedmbo_ray.analysis.series import values_of
from fedmbo_ray.analysis.style import panels, shared_legend

SWEEPS, ENDINGS = ("comparison",), ("finished", "diverged")
LABELS = {
    "fedmbo": "FedMBO",
    "fednest": "FedNest",
    "lfednest": "LFedNest",
    "adafbio": "AdaFBiO",
    "local_bsgvrm": "LocalBSGVRM",
    "fedbioacc": "FedBiOAcc",
    "simfbo": "SimFBO",
    "d_soba": "D-SOBA",
}
BUDGETS = ("communications", "floats", "samples")
DIGITS = "data.partition.digits"


def budget_of(trial: RecordedTrial, x: str) -> list[tuple[Values, Values]]:
    """Accuracy of every seed against what was spent; floats are up- and downstream, of all clients together."""
    if x != "floats":
        return trial.curves(x, "test_accuracy")
    up, down = trial.curves("floats_up", "test_accuracy"), trial.curves("floats_down", "test_accuracy")
    return [(a + b, accuracy) for (a, accuracy), (b, _) in zip(up, down, strict=True)]


def trials(study: RecordedStudy, alike: bool) -> list[RecordedTrial]:
    """Those in which clients are as much alike, or as different, as in any."""
    digits = sorted(values_of(study.sweeps["comparison"], DIGITS))
    return [trial for trial in study.sweeps["comparison"] if trial.param(DIGITS) == digits[-1 if alike else 0]]


def found(study: RecordedStudy, x: str, alike: bool = False) -> dict[str, Curves]:
    made = {}
    for trial in trials(study, alike):
        if trial.status == "finished":
            name = LABELS[trial.param("algorithm.name")]
            made[name] = Curves(name, budget_of(trial, x))
    return made


def tables(study: RecordedStudy) -> list[Table]:
    """A row for each method: accuracy for each budget, and by how much it is better for clients that are alike."""
    every = {x: found(study, x) for x in BUDGETS}
    budgets = {x: common(list(each.values())) for x, each in every.items()}
    reached = [f"accuracy at {budgets[x]:.3g} {AXES[x]}" for x in BUDGETS]
    rows = []
    for trial in trials(study, alike=False):
        name, m = LABELS[trial.param("algorithm.name")], trial.param("clients.num_clients")
        share = f"{trial.param('clients.cohort_size')} of {m}"
        if trial.status == "finished":
            cells = [spread(every[x][name].at(budgets[x])) for x in BUDGETS]
            rows.append([name, share, *cells, gain(study, name)])
        else:
            rows.append([name, share, *[trial.status] * 4])
    columns = ["method", "clients per communication", *reached, "gained at its end if clients are alike"]
    return [Table(columns, rows)]


def spread(values: Values) -> str:
    return f"{values.mean():.3f} ± {values.std(ddof=1):.3f}"


def gain(study: RecordedStudy, name: str) -> str:
    """The accuracy that a method ends with, for clients that are alike, minus that for those that differ."""
    alike, different = (found(study, "samples", each).get(name) for each in (True, False))
    return spread(alike.at(alike.end) - different.at(different.end)) if alike and different else "–"


def claims(study: RecordedStudy) -> list[Claim]:
    said = []
    for x in BUDGETS:
        every = found(study, x)
        if "FedMBO" in every:
            budget = common(list(every.values()))
            pairs = [(every["FedMBO"], each) for name, each in every.items() if name != "FedMBO"]
            what = f"accuracy at {budget:.3g} {AXES[x]}"
            said += orderings(pairs, partial(Curves.at, budgets=budget), what, study.seeds)
    return said


def draw(study: RecordedStudy) -> Figure:
    figure, axes = panels(3)
    for axis, x in zip(axes, BUDGETS, strict=True):
        for number, each in enumerate(found(study, x).values()):
            band(axis, each, number, log=True)
        axis.set(xlabel=AXES[x], ylabel="test accuracy", xscale="log")
    shared_legend(figure, axes[0])
    return figure


def caption(study: RecordedStudy) -> str:
    return (
        "Every method at the step sizes that were best for it among equally many, two digits per client: test accuracy "
        "against communications, floats sent (up and down, all clients together) and samples drawn. Methods that need "
        "every client get every client. The table also has what clients that are alike (ten digits each) would gain."
    )
