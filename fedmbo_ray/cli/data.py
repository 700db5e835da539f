"""fedmbo data: list data sets, and show how a config distributes them over clients."""

import argparse
import string
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
    from fedmbo_ray.cli.spread import Spread
    from fedmbo_ray.config.overrides import Override

PICTURES = ("png", "svg", "pdf")
SHOWN = 10  # clients whose labels are shown one by one
WIDTH = 50  # of the longest bar
WIDE = 140  # columns from which the table of data sets has room for licences and sources
SIGNS = string.digits + string.ascii_lowercase
COLOURS = ("blue", "red", "green", "magenta", "yellow", "cyan", "bright_blue", "bright_red", "bright_green", "white")

HELP = """
Examples:
  fedmbo data                     the data sets, and which are downloaded
  fedmbo data fetch mnist         download one into $FEDMBO_DATA (default: ~/.cache/fedmbo_ray)
  fedmbo data mnist               how a config (a file or a shipped name) distributes its data over clients
  fedmbo data digits dirichlet data.partition.alpha=0.3 clients.num_clients=20 --plot clients.png
  fedmbo data patients.csv data.target=ill data.client=hospital
  fedmbo data my_package.data:load iid clients.num_clients=5
"""


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = Parser("fedmbo_ray.data", "Show data sets, and how a config distributes them over its clients.", HELP)
    what = (
        "a config or a data set (a name, a file, a folder, package.module:function); a partition; changes; "
        "or `fetch` and data sets to download"
    )
    parser.add_argument("words", nargs="*", metavar="CONFIG | DATA_SET [PARTITION] | key.path=value | fetch", help=what)
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


def fetch_named(names: list[str]) -> None:
    from fedmbo_ray.data.datasets import ABOUT, DATASETS, data_root, load_dataset

    for name in names:
        if name not in DATASETS:
            raise ConfigError(f"unknown data set {name!r}; {choices(name, list(DATASETS))}")
    if not names:
        raise ConfigError(f"fetch needs the name of a data set; {choices('', list(DATASETS))}")
    for name in names:
        load_dataset(name, data_root())
        print(f"{name}: {data_root() / name}" if ABOUT[name].files else f"{name}: embedded")


def show_spread(words: list[str], picture: Path | None) -> None:
    from fedmbo_ray.cli.spread import spread_of

    spread = spread_of(*meant(words))
    console = terminal()
    console.print(f"{escape(spread.title)}; {spread.test} rows to test\n", highlight=False)
    console.print(sizes(spread), differences(spread), labels(spread))
    console.print(caption(spread), highlight=False)
    if spread.reason:
        console.print(f"gradients are not compared: {escape(spread.reason)}", highlight=False)
    if picture is not None:
        from fedmbo_ray.cli.spread_picture import drawn

        picture.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(picture, drawn(spread, picture.suffix.removeprefix(".")))
        print(f"wrote {picture}")


def meant(words: list[str]) -> tuple[Path | None, list["Override"]]:
    """The config that words mean, or None for the default one, and the changes to it."""
    changes: list[Override] = [word for word in words if is_override(word)]
    names = [word for word in words if not is_override(word)]
    data = data_of(names[0]) if names else None
    if len(names) > 2:
        raise ConfigError(f"one config or data set and one partition at most, but got {', '.join(names)}")
    if len(names) == 2:
        changes.insert(0, f"data.partition={names[1]}")
    if data is not None:
        return None, [(["data"], data), *changes]
    return (find_config(names[0]) if names else None), changes


def data_of(word: str) -> dict[str, object] | None:
    """The data set that a word means: one of the catalogue, a function, a file, a folder; None if it is a config."""
    from fedmbo_ray.core.imports import is_path
    from fedmbo_ray.data.array_files import ARRAYS
    from fedmbo_ray.data.datasets import known
    from fedmbo_ray.data.tables import TABLES

    if word.lower().endswith((*TABLES, *ARRAYS)):
        return {"name": "file", "path": word}
    if Path(word).is_dir():
        saved = any((Path(word) / name).is_file() for name in ("dataset_dict.json", "dataset_info.json"))
        return {"name": "huggingface" if saved else "images", "path": word}
    return {"name": word} if is_path(word) or (word in known() and not is_config(word)) else None


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


def differences(spread: "Spread") -> Table:
    """How much clients differ."""
    table = Table("how much clients differ", "", box=box.SIMPLE_HEAD, pad_edge=False)
    what = "numbers: mean earth mover's distance to all rows, in standard deviations"
    what = what if spread.edges else "labels: mean total variation distance to all rows (0 to 1)"
    table.add_row(what, f"{spread.label_distance():.3f}")
    table.add_row("sizes: standard deviation / mean", f"{spread.size_variation():.3f}")
    if spread.diversity is not None:
        table.add_row("gradients at the start: mean ‖∇gᵢ − ∇g‖² / ‖∇g‖²", f"{spread.diversity:.3g}")
    return table


def labels(spread: "Spread") -> Table:
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


def caption(spread: "Spread") -> str:
    """What the bars show."""
    scale = scale_of(spread)
    shown = f"the first {SHOWN} of {len(spread.labels)} clients; " if len(spread.labels) > SHOWN else ""
    rows = f"{scale:.2g}" if scale < 100 else f"{scale:.0f}"
    stands = "a row" if scale == 1 else f"about {f'{rows} rows' if scale >= 1.5 else 'a row'}"
    return f"{shown}each character stands for {stands}{legend(spread)}"


def scale_of(spread: "Spread") -> float:
    """How many rows a character of a bar stands for."""
    return max(max(sum(counts) for counts in spread.labels) / WIDTH, 1)


def sign(label: int) -> str:
    """The character of a label."""
    return SIGNS[label % len(SIGNS)]


def legend(spread: "Spread") -> str:
    """What the characters mean, where they are not the labels themselves."""
    names = list(spread.class_names[:SHOWN])
    if spread.edges:
        low, high = spread.edges[0], spread.edges[-1]
        return f"; 0 to {sign(spread.classes - 1)} are equal parts of the numbers from {low:g} to {high:g}"
    if all(name == sign(i) for i, name in enumerate(names)):
        return ""
    more = ", …" if len(spread.class_names) > SHOWN else ""
    return escape("; " + ", ".join(f"{sign(i)} = {name}" for i, name in enumerate(names)) + more)


def main(words: list[str] | None = None) -> int:
    def work() -> int:
        args = parse(words)
        if not args.words and args.plot is None:
            show_data_sets()
        elif args.words[:1] == ["fetch"]:
            fetch_named(args.words[1:])
        else:
            show_spread(args.words, args.plot)
        return 0

    return guarded(work, lambda: "")
