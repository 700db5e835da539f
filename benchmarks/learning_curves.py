"""python -m benchmarks.learning_curves FILE.png: one run on each data set, against a guess that ignores the inputs."""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fedmbo_ray.analysis.style import COLOURS, drawn, panels, styled
from fedmbo_ray.api.experiment import run_experiment
from fedmbo_ray.api.run import Run
from fedmbo_ray.core.io import write_atomically

# Shipped configs by the data set that they run on, and what they are changed by.
RUNS: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "digits": (None, ()),
    "mnist": ("mnist", ()),
    "fashion_mnist": ("mnist", ("data.name=fashion_mnist",)),
    "fars": ("fars", ()),
    "adult": ("adult", ()),
    "exercises": ("exercises", ()),
    "speeches": ("speeches", ()),
    "chem97": ("chem97", ()),
    "chem97_schools": ("chem97", ("data.name=chem97_schools", "clients.num_clients=2067")),
}
SEEDS = (0, 1)


def guess(run: Run) -> float:
    """The test accuracy of the most frequent label; 0 for R², which is that of the mean."""
    data = run.config.data
    assert data is not None
    found = data.load()
    if not found.num_classes:
        return 0.0
    label = np.bincount(found.train_targets).argmax()
    return float((found.test_targets == label).mean())


@styled
def picture(runs: dict[str, list[Run]]) -> Figure:
    """A panel for each data set."""
    figure, axes = panels(3, -(-len(runs) // 3), height=2.6)
    for axis, (name, each) in zip(axes, runs.items(), strict=False):
        what = "test_accuracy" if "test_accuracy" in each[0].records else "test_r2"
        for run in each:
            axis.plot(run.records["communications"], run.records[what], color=COLOURS[0], linewidth=1.2)
        axis.axhline(guess(each[0]), color=COLOURS[1], linestyle="--", linewidth=1.2)
        axis.set(title=name, ylim=(min(guess(each[0]) - 0.05, 0), 1))
        axis.set_ylabel("test R²" if what == "test_r2" else "test accuracy")
        axis.set_xlabel("communications")
    for axis in axes[len(runs) :]:
        axis.remove()
    return figure


def main() -> None:
    runs = {}
    for name, (config, words) in RUNS.items():
        runs[name] = [run_experiment(config, *words, seed=seed, progress=False) for seed in SEEDS]
        last = [run.last.get("test_accuracy", run.last.get("test_r2")) for run in runs[name]]
        print(f"{name}: {', '.join(f'{value:.3f}' for value in last)}, guess {guess(runs[name][0]):.3f}", flush=True)
    write_atomically(Path(sys.argv[1]), styled(drawn)(picture(runs), "png"))


if __name__ == "__main__":
    main()
