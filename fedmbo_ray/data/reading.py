"""What the readers of users' data share: where data come from, and what every path must be."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fedmbo_ray.core.errors import ConfigError, at, choices
from fedmbo_ray.data.dataset import Dataset, dataset_of
from fedmbo_ray.data.values import AnyArray, as_targets

SHOWN = 12  # names of columns that an error lists


class Source(NamedTuple):
    """Where data come from, as a config says it; see `DataConfig`."""

    name: str
    path: Path | None = None
    target: str | None = None
    client: str | None = None
    group: str | None = None
    test: float | Path | None = None
    arguments: Mapping[str, object] = {}
    categories: tuple[str, ...] = ()
    predict: Literal["labels", "numbers"] | None = None
    size: tuple[int, int] | None = None

    @property
    def place(self) -> Path:
        """The path, which is there if the config has been checked."""
        assert self.path is not None
        return self.path

    @property
    def fraction(self) -> float | None:
        """The fraction of rows to test on; None if the config does not say."""
        return self.test if isinstance(self.test, float) else None


def existing_file(path: Path, key: str) -> Path:
    """The path, if there is a file that holds something; else a ConfigError at the key."""
    if path.is_dir():
        raise ConfigError(f"must be a file, but {path} is a folder; see data.name=images and huggingface", key)
    if not path.is_file():
        raise ConfigError(f"must be a file, but there is no {path}{nearest_file(path)}", key)
    if path.stat().st_size == 0:
        raise ConfigError(f"must have rows, but {path} is empty", key)
    return path


def existing_folder(path: Path, key: str) -> Path:
    """The path, if there is a folder; else a ConfigError at the key."""
    if not path.is_dir():
        what = "is a file" if path.is_file() else f"is not there{nearest_file(path)}"
        raise ConfigError(f"must be a folder, but {path} {what}", key)
    return path


def nearest_file(path: Path) -> str:
    """The file of a similar name in the same folder, as a hint."""
    near = [each.name for each in sorted(path.parent.iterdir())] if path.parent.is_dir() else []
    found, _, _ = choices(path.name, near).partition("known: ")
    return f"; {found.strip()}" if found else ""


def column(name: str, known: list[str], key: str) -> str:
    """The name of a column, if it is one; else a ConfigError at the key."""
    if name not in known:
        raise ConfigError(f"unknown column {name!r}; {some(name, known)}", key)
    return name


def some(wrong: str, known: list[str]) -> str:
    """As `choices`, but of many names the first ones alone."""
    if len(known) <= SHOWN:
        return choices(wrong, known)
    hint, _, _ = choices(wrong, known).partition("known: ")
    return f"{hint}known: {', '.join(known[:SHOWN])}, … ({len(known)} in all)"


def finished(source: Source, arrays: Mapping[str, Any]) -> Dataset:
    """The data set that a file's arrays make; what is wrong with its targets is an error at `target`."""
    made = dict(arrays)
    for key in ("targets", "test_targets"):
        if key in made:
            made[key] = as_predicted(made[key], source.predict)
    with at("target"):
        as_targets(made["targets"])
    try:
        return dataset_of(source.place.name, made, source.fraction)
    except ConfigError as error:
        raise ConfigError(error.rule, *(error.path or ("path",))) from None


def as_predicted(targets: AnyArray, predict: str | None) -> AnyArray:
    """Targets as labels or as numbers, if the config says which."""
    if predict == "numbers":
        try:
            return targets.astype(np.float64)
        except ValueError:
            raise ConfigError(f"numbers are predicted, but a target is {str(targets[0])[:40]!r}", "predict") from None
    if predict == "labels" and targets.dtype.kind == "f":
        whole = bool((targets == np.round(targets)).all())
        return targets.astype(np.int64) if whole else targets.astype(str)
    return targets
