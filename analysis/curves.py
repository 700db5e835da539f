"""python -m analysis.curves RUN_FOLDER ... [--out curves.png]: progress of runs against communications."""

import os
import sys
from pathlib import Path

from analysis.style import COLOURS, drawn, plt
from fedmbo_ray.checkpoints import Record, RunFolder, write_atomically
from fedmbo_ray.command import Parser, guarded
from fedmbo_ray.registry import ConfigError

KINDS = ("png", "svg", "pdf")
PANELS = {
    "test_error": "test error (1 − accuracy)",
    "hypergradient_norm_sq": "‖∇Φ(x)‖²",
    "upper_loss": "upper loss",
    "lower_loss": "lower loss",
    "cleaning_auc": "P(clean row outweighs corrupted one)",
}


def read(folder: Path) -> list[Record]:
    """The records of a run; a test error stands beside every accuracy, as it reads better on a log scale."""
    records = RunFolder(folder).records()
    if not records:
        raise ConfigError(f"a run folder must hold records.jsonl with records, but {folder} does not")
    return [
        record | {"test_error": 1 - record["test_accuracy"]} if record.get("test_accuracy") is not None else record
        for record in records
    ]


def draw(runs: dict[str, list[Record]]) -> plt.Figure:
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


def main(words: list[str] | None = None) -> int:
    parser = Parser("analysis.curves", "Draw what runs have recorded against communications.", "")
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN_FOLDER")
    parser.add_argument(
        "--out", type=Path, default=Path("curves.png"), help=f"{', '.join(KINDS)} (default: curves.png)"
    )

    def work() -> int:
        args = parser.parse_args(words)
        kind = args.out.suffix.removeprefix(".")
        if kind not in KINDS:
            raise ConfigError(f"--out must end in one of {', '.join(KINDS)}, but got {args.out}")
        runs = dict(zip(labels(args.folders), map(read, args.folders), strict=True))
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(args.out, drawn(draw(runs), kind))
        print(f"wrote {args.out}")
        return 0

    return guarded(work, lambda: "")


if __name__ == "__main__":
    sys.exit(main())
