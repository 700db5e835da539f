"""Data sets by the name that a config gives them: those of the catalogue, other packages' and users' own."""

import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from fedmbo_ray.core.errors import ConfigError, DownloadError, choices, first_line
from fedmbo_ray.core.imports import imported, is_path
from fedmbo_ray.data import images, natural
from fedmbo_ray.data.dataset import About, Dataset, dataset_of

Load = Callable[[Path], Dataset]  # from the folder where data sets are kept

DATASETS: dict[str, Load] = {
    "digits": images.digits,
    "mnist": images.mnist,
    "fashion_mnist": images.fashion_mnist,
    "cifar10": images.cifar10,
    **natural.DATASETS,
}
ABOUT: dict[str, About] = {**images.ABOUT, **natural.ABOUT}


def data_root() -> Path:
    """Where data sets are kept: $FEDMBO_DATA, or a folder in the user's cache."""
    return Path(os.environ.get("FEDMBO_DATA") or Path.home() / ".cache" / "fedmbo_ray")


@cache
def plugins() -> dict[str, EntryPoint]:
    """The data sets of other packages, by entry points in the group `fedmbo_ray.datasets`: functions that load them."""
    return {point.name: point for point in entry_points(group="fedmbo_ray.datasets")}


def known() -> list[str]:
    """All names of the catalogue."""
    return list(dict.fromkeys([*DATASETS, *plugins()]))


def check_name(name: str, others: list[str]) -> str:
    """The name, if it is one of the catalogue or of `others`, or says where a function is; else a ConfigError."""
    if name in DATASETS or name in plugins() or name in others or is_path(name):
        return name
    raise ConfigError(f"unknown data set {name!r}; {choices(name, [*known(), *others])}, or package.module:function")


@cache
def load_dataset(name: str, root: Path) -> Dataset:
    """A data set of the catalogue that this package has."""
    return DATASETS[name](root)


def called_dataset(name: str, arguments: Mapping[str, object], test: float | None) -> Dataset:
    """The data set that another package's or a user's function returns."""
    function = plugins()[name].load() if name in plugins() else imported(name, "data set")
    if not callable(function):
        raise ConfigError(f"data set {name!r} must be a function that returns arrays, but is {function!r}")
    try:
        answer = function(**arguments)
    except (ConfigError, DownloadError):
        raise
    except Exception as error:  # whatever a user's function raises
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise ConfigError(f"data set {name}({shown}) failed: {type(error).__name__}: {first_line(error)}") from error
    return dataset_of(name, answer, test)
