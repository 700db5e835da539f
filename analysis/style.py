"""One look for all figures: colours that the colour-blind can tell apart, readable at column width.

Nothing here touches pyplot, its backend or its settings: what makes or draws a figure is `styled`.
"""

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypedDict, TypeVar

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from fedmbo_ray.core.io import write_atomically

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]  # Okabe and Ito
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]

HEIGHT = 3.3

Args = ParamSpec("Args")
T = TypeVar("T")


def style() -> AbstractContextManager[None]:
    """Within it, matplotlib makes and draws figures in this look; afterwards its settings are what they were."""
    return matplotlib.rc_context(
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


class Look(TypedDict):
    """How a line looks."""

    color: str
    marker: str


class Picture(Figure):
    """A figure that notebooks show, whatever pyplot's backend is."""

    def _repr_png_(self) -> bytes:
        return drawn(self, "png")


def styled(draw: Callable[Args, T]) -> Callable[Args, T]:
    """The function, which runs within `style`."""

    @wraps(draw)
    def within(*args: Args.args, **kwargs: Args.kwargs) -> T:
        with style():
            return draw(*args, **kwargs)

    return within


def panels(columns: int, rows: int = 1, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    """Panels of the width of a column, row after row."""
    figure = Picture(figsize=(4 * columns, height * rows))
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def look(number: int) -> Look:
    """Colour and marker of the number-th line."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def plain_ticks(axis: Axes) -> None:
    """The sizes that were run, as numbers, on a logarithmic axis."""
    sizes = sorted({float(x) for line in axis.get_lines() for x in np.asarray(line.get_xdata())})
    shown = [size for i, size in enumerate(sizes) if i == 0 or size / sizes[i - 1] > 1.3]
    axis.xaxis.set_major_locator(FixedLocator(shown))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_locator(NullLocator())


def plain_values(axis: Axes) -> None:
    """1, 2, 5 without powers on a logarithmic axis that spans little."""
    for set_formatter in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
        set_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "125" else ""))


def legend_below(axis: Axes) -> None:
    """Beside no line; the figure gets as much higher."""
    _, labels = axis.get_legend_handles_labels()
    figure = axis.get_figure(root=True)
    assert figure is not None
    figure.set_figheight(max(figure.get_figheight(), HEIGHT + 0.24 * len(labels)))
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18))


def shared_legend(figure: Figure, axis: Axes) -> None:
    """One legend for panels that show the same lines."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4))


def save(figure: Figure, folder: Path, name: str) -> None:
    """As PNG and as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, own in ("png", "Software"), ("svg", "Date"):
        write_atomically(folder / f"{name}.{kind}", drawn(figure, kind, {own: None}))


@styled
def drawn(figure: Figure, kind: str, metadata: dict[str, None] | None = None) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()
