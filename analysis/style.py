"""One look for all figures: colours that the colour-blind can tell apart, readable at column width."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from cycler import cycler
from matplotlib import pyplot as plt

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]  # Okabe and Ito
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]

plt.rcParams.update(
    {
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "font.size": 11,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "savefig.dpi": 150,
        "figure.constrained_layout.use": True,
        "svg.hashsalt": "fedmbo_ray",  # the same figure has the same bytes
    }
)


def panels(columns: int, rows: int = 1) -> tuple[plt.Figure, list[plt.Axes]]:
    """Panels of the width of a column, row after row."""
    figure, axes = plt.subplots(rows, columns, figsize=(4 * columns, 3.3 * rows), squeeze=False)
    return figure, list(axes.flat)


def look(number: int) -> dict[str, str]:
    """Colour and marker of the number-th line."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def save(figure: plt.Figure, folder: Path, name: str) -> None:
    """As PNG and as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", metadata={"Software": None})
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
