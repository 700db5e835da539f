"""python -m analysis.curves RUN_FOLDER ... [--out curves.png]: progress of runs against communications."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from analysis.style import COLOURS, plt

Record = dict[str, Any]
PANELS = {
    "test_error": "test error (1 − accuracy)",
    "hypergradient_norm_sq": "‖∇Φ(x)‖²",
    "upper_loss": "upper loss",
    "lower_loss": "lower loss",
    "cleaning_auc": "P(clean row outweighs corrupted one)",
}


def read(folder: Path) -> list[Record]:
    """The records of a run; a test error stands beside every accuracy, as it reads better on a log scale."""
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [
        record | {"test_error": 1 - record["test_accuracy"]} if record.get("test_accuracy") is not None else record
        for record in records
    ]


def draw(runs: dict[str, list[Record]], out: Path) -> None:
    """One panel for each figure that the runs have, one line for each run."""
    panels = [key for key in PANELS if any(values(run, key) for run in runs.values())]
    figure, axes = plt.subplots(1, len(panels), figsize=(4 * len(panels), 3.2), squeeze=False)
    for key, axis in zip(panels, axes[0], strict=True):
        for number, (label, run) in enumerate(runs.items()):
            shown = [record["communications"] for record in run if record.get(key) is not None]
            if shown:
                axis.plot(shown, values(run, key), label=label, color=COLOURS[number % len(COLOURS)])
        positive = all(value > 0 for run in runs.values() for value in values(run, key))
        axis.set(xlabel="communications", title=PANELS[key], yscale="log" if positive else "linear")
        axis.legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)


def values(run: list[Record], key: str) -> list[float]:
    return [record[key] for record in run if record.get(key) is not None]


def labels(folders: list[Path]) -> list[str]:
    """The folders' names, or where they don't tell runs apart, the paths from the folder that all are in."""
    names = [folder.name for folder in folders]
    if len(set(names)) == len(names):
        return names
    top = os.path.commonpath([folder.absolute() for folder in folders])
    return [os.path.relpath(folder.absolute(), top) for folder in folders]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis.curves", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN_FOLDER")
    parser.add_argument("--out", type=Path, default=Path("curves.png"))
    args = parser.parse_args()
    missing = [folder for folder in args.folders if not (folder / "records.jsonl").exists()]
    if missing:
        print(f"error: a run folder must hold records.jsonl, but {missing[0]} does not", file=sys.stderr)
        return 2
    draw(dict(zip(labels(args.folders), map(read, args.folders), strict=True)), args.out)
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
