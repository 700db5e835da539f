"""A plot of one run."""

from matplotlib.figure import Figure

from fedmbo_ray.analysis.style import panels, styled
from fedmbo_ray.core.errors import ConfigError, choices
from fedmbo_ray.runs.records import ENDING, Record


@styled
def picture(records: list[Record], figure: str, x: str) -> Figure:
    """One figure of some records against another."""
    if not records:
        raise ConfigError("there is nothing to plot: the run has no record yet")
    known = [key for key in records[-1] if key not in ENDING]
    unknown = next((name for name in (figure, x) if name not in known), None)
    if unknown is not None:
        raise ConfigError(f"unknown figure {unknown!r}; {choices(unknown, known)}")
    shown = [record for record in records if record[figure] is not None and record[x] is not None]
    drawn, (axis,) = panels(1)
    axis.plot([record[x] for record in shown], [record[figure] for record in shown])
    axis.set(xlabel=x.replace("_", " "), ylabel=figure.replace("_", " "))
    return drawn
