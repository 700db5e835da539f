"""How data are distributed over clients, as a picture."""

import io
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure  # without pyplot, no global state changes
from matplotlib.ticker import MaxNLocator

from fedmbo_ray.runs.spread import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 30  # labels or clients that are named one by one; more would overlap


def drawn(spread: Spread, kind: str) -> bytes:
    """The picture as a file of that kind."""
    buffer = io.BytesIO()
    figure(spread).savefig(buffer, format=kind, dpi=150)
    return buffer.getvalue()


def figure(spread: Spread) -> Figure:
    """Clients from left to right: above how many rows they have, below the share of each label as a colour."""
    clients, width = len(spread.labels), min(5 + 0.08 * len(spread.labels), 14)
    height = 2.6 + (3.0 if spread.edges else min(max(0.22 * spread.classes, 1.6), 6))
    made = Figure(figsize=(width, height), layout="constrained")
    above, below = made.subplots(2, 1, sharex=True, height_ratios=[1, height - 1.6])
    above.stairs(np.add(spread.train, spread.validation), np.arange(clients + 1) - 0.5, fill=True, color="0.45")
    above.set(ylabel="rows", title=spread.title, xlim=(-0.5, clients - 0.5))
    shares = spread.shares().T
    extent = (-0.5, clients - 0.5, spread.edges[0], spread.edges[-1]) if spread.edges else None
    shown = below.imshow(
        shares, aspect="auto", origin="lower", cmap="Blues", vmin=0, interpolation="nearest", extent=extent
    )
    below.set(xlabel="client", ylabel="number to predict" if spread.edges else "label")
    if not spread.edges:
        name_axis(below, "y", spread.class_names or tuple(map(str, range(spread.classes))))
    name_axis(below, "x", spread.client_names)
    made.colorbar(shown, ax=below, label="share of the client's rows")
    return made


def name_axis(axes: "Axes", which: str, names: tuple[str, ...]) -> None:
    """Names on an axis if there are few; else whole numbers."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    if names and len(names) <= NAMED:
        crowded = which == "x" and sum(map(len, names)) > 60
        axis.set_ticks(range(len(names)), names, rotation=90 if crowded else 0)
    else:
        axis.set_major_locator(MaxNLocator(integer=True))
