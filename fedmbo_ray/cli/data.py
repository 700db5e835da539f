"""fedmbo data: list data sets, and show how a config distributes them over clients."""

import argparse
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedmbo_ray.cli.command import Parser, guarded
from fedmbo_ray.config.shipped import find_config, is_override
from fedmbo_ray.core.errors import ConfigError, choices
from fedmbo_ray.core.io import write_atomically

if TYPE_CHECKING:  # numpy and torch, which --help does not need
    from matplotlib.figure import Figure

    from fedmbo_ray.cli.spread import Spread

PICTURES = ("png", "svg", "pdf")
SHOWN = 10  # clients whose labels are shown one by one
WIDTH = 50  # of the longest bar
WIDE = 140  # columns from which the table of data sets has room for licences and sources
COLOURS = ("blue", "red", "green", "magenta", "yellow", "cyan", "bright_blue", "bright_red", "bright_green", "white")

HELP = """
Examples:
  fedmbo data                     the data sets, and which are downloaded
  fedmbo data fetch mnist         download one into $FEDMBO_DATA (default: ~/.cache/fedmbo_ray)
  fedmbo data mnist               how a config (a file or a shipped name) distributes its data over clients
  fedmbo data digits 'data.partition={name: dirichlet, alpha: 0.3}' clients.num_clients=20 --plot clients.png
"""


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = Parser("fedmbo_ray.data", "Show data sets, and how a config distributes them over its clients.", HELP)
    what = "a config, or a data set with the default partition; changes to it; or `fetch` and data sets to download"
    parser.add_argument("words", nargs="*", metavar="CONFIG | DATA_SET | key.path=value | fetch", help=what)
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="also draw the labels of every client")
    args = parser.parse_intermixed_args(words)
    if args.plot is not None and args.plot.suffix.removeprefix(".") not in PICTURES:
        raise ConfigError(f"--plot must end in one of {', '.join(PICTURES)}, but got {args.plot}")
    return args


def show_data_sets() -> None:
    from fedmbo_ray.data.datasets import ABOUT, data_root

    console = terminal()
    origin = ("licence", "source") if console.width >= WIDE else ()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("name", "train", "test", "shape", "classes", "clients", *origin, "where"):
        number = column in ("train", "test", "classes", "clients")
        table.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=column == "name")
    for name, about in ABOUT.items():
        kept = "downloaded" if about.kept(data_root() / name) else f"not downloaded (fedmbo data fetch {name})"
        shape = "×".join(map(str, about.shape))
        numbers = (str(about.train), str(about.test), shape, str(about.classes or "–"), str(about.clients or "–"))
        told = (about.licence, about.source) if origin else ()
        table.add_row(name, *numbers, *map(escape, told), kept if about.files else "embedded")
    console.print(table)
    console.print(f"downloaded to {escape(str(data_root()))}", highlight=False, soft_wrap=True)


def fetch(names: list[str]) -> None:
    from fedmbo_ray.data.datasets import ABOUT, DATASETS, data_root, load

    for name in names:
        if name not in DATASETS:
            raise ConfigError(f"unknown data set {name!r}; {choices(name, list(DATASETS))}")
    if not names:
        raise ConfigError(f"fetch needs the name of a data set; {choices('', list(DATASETS))}")
    for name in names:
        load(name, data_root())
        print(f"{name}: {data_root() / name}" if ABOUT[name].files else f"{name}: embedded")


def show_spread(words: list[str], picture: Path | None) -> None:
    from fedmbo_ray.cli.spread import spread_of
    from fedmbo_ray.data.datasets import ABOUT, DATASETS

    overrides = [word for word in words if is_override(word)]
    names = [word for word in words if not is_override(word)]
    if len(names) > 1:
        raise ConfigError(f"one config or data set at most, but got {', '.join(names)}")
    if names and names[0] in DATASETS and not is_config(names[0]):
        clients = ABOUT[names[0]].clients
        own = ["data.partition=natural", f"clients.num_clients={clients}"] if clients else []
        names, overrides = [], [f"data.name={names[0]}", *own, *overrides]
    spread = spread_of(find_config(names[0]) if names else None, overrides)
    console = terminal()
    console.print(f"{escape(spread.title)}\n", highlight=False)
    console.print(sizes(spread), labels(spread))
    if picture is not None:
        picture.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(picture, drawn(spread, picture.suffix.removeprefix(".")))
        print(f"wrote {picture}")


def is_config(word: str) -> bool:
    try:
        find_config(word)
    except ConfigError:
        return False
    return True


def terminal() -> Console:
    return Console(width=None if sys.stdout.isatty() else 200)


def sizes(spread: "Spread") -> Table:
    """How many rows and labels the clients have."""
    table = Table("", "min", "median", "max", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, numbers in spread.sizes().items():
        table.add_row(name, *(f"{number:g}" for number in numbers))
    return table


def labels(spread: "Spread") -> Table:
    """The labels of the first clients as bars on one scale."""
    table = Table("client", "rows", "labels", box=box.SIMPLE_HEAD, pad_edge=False)
    most = max(sum(counts) for counts in spread.labels)
    for client, counts in enumerate(spread.labels[:SHOWN]):
        ends = [round(WIDTH * sum(counts[: label + 1]) / most) for label in range(len(counts))]
        parts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        bar = "".join(f"[{COLOURS[i % len(COLOURS)]}]{str(i)[-1] * part}[/]" for i, part in enumerate(parts) if part)
        table.add_row(str(client), str(sum(counts)), bar)
    if len(spread.labels) > SHOWN:
        table.caption = f"the first {SHOWN} of {len(spread.labels)} clients; a digit is about {most / WIDTH:.2g} rows"
    return table


def drawn(spread: "Spread", kind: str) -> bytes:
    """Stacked bars of the labels of every client."""
    buffer = io.BytesIO()
    figure(spread).savefig(buffer, format=kind, dpi=150)
    return buffer.getvalue()


def figure(spread: "Spread") -> "Figure":
    from matplotlib import colormaps
    from matplotlib.figure import Figure  # without pyplot, no global state changes
    from matplotlib.ticker import MaxNLocator

    made = Figure(figsize=(min(4 + 0.08 * len(spread.labels), 14), 3.5), layout="constrained")
    axes, clients, below = made.subplots(), range(len(spread.labels)), [0] * len(spread.labels)
    for label in range(spread.classes):
        heights = [counts[label] for counts in spread.labels]
        axes.bar(clients, heights, 0.9, bottom=below, label=str(label), color=colormaps["tab20"](label % 20))
        below = [a + b for a, b in zip(below, heights, strict=True)]
    axes.set(xlabel="client", ylabel="rows", title=spread.title)
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    made.legend(title="label", loc="outside right upper", frameon=False)
    return made


def main(words: list[str] | None = None) -> int:
    def work() -> int:
        args = parse(words)
        if not args.words and args.plot is None:
            show_data_sets()
        elif args.words[:1] == ["fetch"]:
            fetch(args.words[1:])
        else:
            show_spread(args.words, args.plot)
        return 0

    return guarded(work, lambda: "")
