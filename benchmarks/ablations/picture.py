"""A panel for each config: its main figure, a dot for each seed, and the mean of each arm with its interval."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from benchmarks.ablations.plan import FULL, SINGLE, Ablation
from benchmarks.ablations.runs import Results
from benchmarks.ablations.table import Row, half_width, rows_of
from fedmbo_ray.analysis.style import COLOURS, drawn, panels, styled
from fedmbo_ray.core.io import write_atomically

AXIS = {1: "{}  (better →)", -1: "(← better)  {}"}
COLUMNS = 3
FAR = 3.5  # an arm is drawn at the edge if it would make the axis so many times longer


@styled
def draw(known: Results, chosen: Sequence[Ablation], seeds: Sequence[int], path: Path) -> None:
    rows = -(-len(chosen) // COLUMNS)
    figure, axes = panels(COLUMNS, rows, 2.4)
    for axis in axes[len(chosen) :]:
        axis.set_visible(False)
    for axis, each in zip(axes, chosen, strict=False):
        main, sign = next(iter(each.figures.items()))
        panel(axis, [row for row in rows_of(known, [each], seeds) if row.figure == main])
        axis.set_title(each.config, fontsize=11, fontweight="bold")
        axis.set_xlabel(AXIS[sign].format(main))
    write_atomically(path, drawn(figure, "png", {"Software": None}))


def panel(axis: Axes, rows: list[Row]) -> None:
    low, high = limits(rows)
    for place, row in enumerate(rows):
        colour = colour_of(row.arm)
        values = row.values[~np.isnan(row.values)]
        if len(values) == len(row.values) and low <= values.mean() <= high:
            axis.scatter(values, place + jitter(len(values)), s=9, color=colour, alpha=0.45, linewidths=0)
            axis.errorbar(
                values.mean(), place, xerr=half_width(values), fmt="o", ms=5, color=colour, capsize=3.5, mec="white"
            )
        else:
            at_the_edge(axis, place, row, right=len(values) == 0 or values.mean() > high)
    axis.axvline(rows[0].values.mean(), color=COLOURS[0], linewidth=0.8, linestyle=":")
    axis.set_xlim(low, high)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_yticks(range(len(rows)), [row.arm.replace(" = ", " =\n") for row in rows])
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=False, axis="y")
    axis.locator_params(axis="x", nbins=5)


def limits(rows: list[Row]) -> tuple[float, float]:
    """Those of the shipped arm and of all that are not far away; some room is left on both sides."""
    low, high = rows[0].values.min(), rows[0].values.max()
    others = [row.values for row in rows[1:] if not np.isnan(row.values).any()]
    for values in sorted(others, key=lambda values: abs(values.mean() - rows[0].values.mean())):
        longer = min(low, values.min()), max(high, values.max())
        if longer[1] - longer[0] < FAR * (high - low):
            low, high = longer
    room = 0.06 * (high - low)
    return float(low - room), float(high + room)


def at_the_edge(axis: Axes, place: int, row: Row, right: bool) -> None:
    """An arrow to where the arm is, and its mean."""
    diverged = int(np.isnan(row.values).sum())
    said = f"diverged on {diverged} of {len(row.values)}" if diverged else f"{row.values.mean():.3g}"
    x, text_x, side = (0.99, 0.90, "right") if right else (0.01, 0.10, "left")
    place_of = axis.get_yaxis_transform()
    arrow = {"arrowstyle": "-|>", "color": colour_of(row.arm), "linewidth": 1.5}
    axis.annotate("", (x, place), (text_x, place), place_of, arrowprops=arrow)
    axis.text(text_x, place, f" {said} ", transform=place_of, ha=side, va="center", fontsize=9)


def jitter(count: int) -> np.ndarray:
    """Heights around 0, the same in every picture."""
    return 0.22 * (np.arange(count) * 5 % count / max(count - 1, 1) * 2 - 1)


def colour_of(arm: str) -> str:
    """The shipped config blue, ordinary training orange, parts left out green, variants purple."""
    if arm.startswith(FULL):
        return COLOURS[0]
    if arm.startswith(SINGLE):
        return COLOURS[1]
    return COLOURS[3] if "tuned" in arm or "frozen at" in arm else COLOURS[2]
