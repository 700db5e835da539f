"""fedmbo data: list data sets, and show how a config distributes them over clients."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedmbo_ray.cli.command import Parser, guarded
from fedmbo_ray.config.shipped import find_config, is_override, is_sweep
from fedmbo_ray.core.errors import ConfigError, at, choices
from fedmbo_ray.core.io import write_atomically

if TYPE_CHECKING:  # numpy and torch, which --help does not need
    from fedmbo_ray.config.overrides import Override
    from fedmbo_ray.config.schema import RunConfig
    from fedmbo_ray.runs.spread import Spread

PICTURES = ("png", "svg", "pdf")
WIDE = 140  # columns from which the table of data sets has room for licences and sources

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
    from fedmbo_ray.runs.spread_tables import show

    spread = spread_shown(*meant(words))
    show(spread, terminal())
    if picture is not None:
        from fedmbo_ray.runs.spread_picture import drawn

        picture.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(picture, drawn(spread, picture.suffix.removeprefix(".")))
        print(f"wrote {picture}")


def spread_shown(file: Path | None, overrides: list["Override"]) -> "Spread":
    """The spread of a config (the default if `file` is None), or of the first point of a sweep.

    Without a file, data whose rows belong to clients have as many clients as there are.
    """
    from fedmbo_ray.data.partitions import Natural
    from fedmbo_ray.runs.build import distributed
    from fedmbo_ray.runs.spread import spread_of, with_gradients

    config = shown_config(file, overrides)
    if config.data is None:
        raise ConfigError(
            f"{type(config.problem).__name__} makes its own data, so there is no data set to show", "problem"
        )
    with at("data"):
        dataset = config.data.load()
    m = config.clients.num_clients
    if file is None and isinstance(config.data.partition, Natural) and dataset.num_clients is not None:
        m = dataset.num_clients
    federated = distributed(config.data, dataset, config.seed, m)
    return with_gradients(spread_of(config.data, federated), config, federated)


def shown_config(file: Path | None, overrides: list["Override"]) -> "RunConfig":
    from fedmbo_ray.config.overrides import read_config
    from fedmbo_ray.sweeps.schema import read_sweep
    from fedmbo_ray.sweeps.space import corners

    if file is None or not is_sweep(file):
        return read_config(file, overrides)
    sweep = read_sweep(file, [word for word in overrides if isinstance(word, str)])
    return sweep.config(next(corners(sweep.dims)))


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
