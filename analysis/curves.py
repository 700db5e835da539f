"""python -m analysis.curves RUN_FOLDER ... [--out curves.png]: progress of runs against communications."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from analysis.style import plt

Record = dict[str, Any]
PANELS = {
    "test_error": "test error (1 − accuracy)",
    "hypergradient_norm_sq": "‖∇Φ(x)‖²",
    "upper_loss": "upper loss",
    "lower_loss": "lower loss",
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
    panels = [key for key in PANELS if any(record.get(key) is not None for run in runs.values() for record in run)]
    figure, axes = plt.subplots(1, len(panels), figsize=(4 * len(panels), 3.2), squeeze=False)
    for key, axis in zip(panels, axes[0], strict=True):
        for label, run in runs.items():
            shown = [record for record in run if record.get(key) is not None]
            axis.plot([r["communications"] for r in shown], [r[key] for r in shown], label=label)
        axis.set(xlabel="communications", title=PANELS[key], yscale="log")
    axes[0][0].legend()
    figure.savefig(out)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis.curves", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN_FOLDER")
    parser.add_argument("--out", type=Path, default=Path("curves.png"))
    args = parser.parse_args()
    missing = [folder for folder in args.folders if not (folder / "records.jsonl").exists()]
    if missing:
        print(f"error: a run folder must hold records.jsonl, but {missing[0]} does not", file=sys.stderr)
        return 2
    draw({folder.name: read(folder) for folder in args.folders}, args.out)
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
