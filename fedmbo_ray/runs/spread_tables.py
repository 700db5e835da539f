"""How data are distributed over clients, as tables on a terminal."""

import string

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedmbo_ray.runs.spread import Spread

SHOWN = 10  # clients whose labels are shown one by one
WIDTH = 50  # of the longest bar
SIGNS = string.digits + string.ascii_lowercase
COLOURS = ("blue", "red", "green", "magenta", "yellow", "cyan", "bright_blue", "bright_red", "bright_green", "white")


def show(spread: Spread, console: Console) -> None:
    """Print all tables."""
    console.print(f"{escape(spread.title)}; {spread.test} rows to test\n", highlight=False)
    console.print(sizes(spread), differences(spread), labels(spread))
    console.print(caption(spread), highlight=False)
    if spread.reason:
        console.print(f"gradients are not compared: {escape(spread.reason)}", highlight=False)


def sizes(spread: Spread) -> Table:
    """How many rows and labels the clients have."""
    table = Table("", "min", "median", "max", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, numbers in spread.sizes().items():
        table.add_row(name, *(f"{number:g}" for number in numbers))
    return table


def differences(spread: Spread) -> Table:
    """How much clients differ."""
    table = Table("how much clients differ", "", box=box.SIMPLE_HEAD, pad_edge=False)
    what = "numbers: mean earth mover's distance to all rows, in standard deviations"
    what = what if spread.edges else "labels: mean total variation distance to all rows (0 to 1)"
    table.add_row(what, f"{spread.label_distance():.3f}")
    table.add_row("sizes: standard deviation / mean", f"{spread.size_variation():.3f}")
    if spread.diversity is not None:
        table.add_row("gradients at the start: mean ‖∇gᵢ − ∇g‖² / ‖∇g‖²", f"{spread.diversity:.3g}")
    return table


def labels(spread: Spread) -> Table:
    """The labels of the first clients as bars on one scale; no bar has more characters than the client has rows."""
    table = Table("client", "rows", "numbers" if spread.edges else "labels", box=box.SIMPLE_HEAD, pad_edge=False)
    scale = scale_of(spread)
    for client, counts in enumerate(spread.labels[:SHOWN]):
        ends = [round(sum(counts[: label + 1]) / scale) for label in range(len(counts))]
        parts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        bar = "".join(f"[{COLOURS[i % len(COLOURS)]}]{sign(i) * part}[/]" for i, part in enumerate(parts) if part)
        name = spread.client_names[client] if spread.client_names else str(client)
        table.add_row(escape(name), str(sum(counts)), bar)
    return table


def caption(spread: Spread) -> str:
    """What the bars show."""
    scale = scale_of(spread)
    shown = f"the first {SHOWN} of {len(spread.labels)} clients; " if len(spread.labels) > SHOWN else ""
    rows = f"{scale:.2g}" if scale < 100 else f"{scale:.0f}"
    stands = "a row" if scale == 1 else f"about {f'{rows} rows' if scale >= 1.5 else 'a row'}"
    return f"{shown}each character stands for {stands}{legend(spread)}"


def scale_of(spread: Spread) -> float:
    """How many rows a character of a bar stands for."""
    return max(max(sum(counts) for counts in spread.labels) / WIDTH, 1)


def sign(label: int) -> str:
    """The character of a label."""
    return SIGNS[label % len(SIGNS)]


def legend(spread: Spread) -> str:
    """What the characters mean, where they are not the labels themselves."""
    names = list(spread.class_names[:SHOWN])
    if spread.edges:
        low, high = spread.edges[0], spread.edges[-1]
        return f"; 0 to {sign(spread.classes - 1)} are equal parts of the numbers from {low:g} to {high:g}"
    if all(name == sign(i) for i, name in enumerate(names)):
        return ""
    more = ", …" if len(spread.class_names) > SHOWN else ""
    return escape("; " + ", ".join(f"{sign(i)} = {name}" for i, name in enumerate(names)) + more)
