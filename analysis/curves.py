"""What runs have recorded, against communications."""

import os
from pathlib import Path

from matplotlib.figure import Figure

from fedmbo_ray.analysis.style import COLOURS, panels, styled
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.records import Record

PANELS = {
    "test_error": "test error (1 − accuracy)",
    "hypergradient_norm_sq": "‖∇Φ(x)‖²",
    "upper_loss": "upper loss",
    "lower_loss": "lower loss",
    "cleaning_auc": "P(clean row outweighs corrupted one)",
}


def read(folder: Path) -> list[Record]:
    """The records of a run; a test error stands beside every accuracy, as it reads better on a log scale."""
    records = RunFolder(folder).proven_records()
    if not records:
        raise ConfigError(f"a run folder must hold records.jsonl with records, but {folder} does not")
    return [
        record | {"test_error": 1 - record["test_accuracy"]} if record.get("test_accuracy") is not None else record
        for record in records
    ]


@styled
def draw(runs: dict[str, list[Record]]) -> Figure:
    """One panel for each figure that the runs have, one line for each run."""
    shown = [key for key in PANELS if any(values(run, key) for run in runs.values())]
    figure, axes = panels(len(shown), height=3.2)
    for key, axis in zip(shown, axes, strict=True):
        for number, (label, run) in enumerate(runs.items()):
            xs = [record["communications"] for record in run if record.get(key) is not None]
            if xs:
                axis.plot(xs, values(run, key), label=label, color=COLOURS[number % len(COLOURS)])
        positive = all(value > 0 for run in runs.values() for value in values(run, key))
        axis.set(xlabel="communications", title=PANELS[key], yscale="log" if positive else "linear")
        axis.legend()
    return figure


def values(run: list[Record], key: str) -> list[float]:
    return [record[key] for record in run if record.get(key) is not None]


def labels(folders: list[Path]) -> list[str]:
    """The folders' names, or where they don't tell runs apart, the paths from the folder that all are in."""
    names = [folder.name for folder in folders]
    if len(set(names)) == len(names):
        return names
    top = os.path.commonpath([folder.absolute() for folder in folders])
    return [os.path.relpath(folder.absolute(), top) for folder in folders]
