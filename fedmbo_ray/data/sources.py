"""Data that users bring: a file of rows, a folder of images, a Hugging Face data set on disk, or a function."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.data.dataset import Dataset
from fedmbo_ray.data.datasets import call

TEST = 0.2  # the fraction of rows to test on, unless a config says otherwise


class Source(NamedTuple):
    """Where data come from, as a config says it; see `DataConfig`."""

    name: str
    path: Path | None = None
    target: str | None = None
    client: str | None = None
    group: str | None = None
    test: float | Path | None = None
    arguments: Mapping[str, object] = {}


def read(source: Source) -> Dataset:
    """The data set behind a source."""
    if source.name in READERS:
        return READERS[source.name](source)
    if isinstance(source.test, Path):
        raise ConfigError("must be a fraction of the rows for a function, which may return test rows itself", "test")
    return call(source.name, source.arguments, TEST if source.test is None else source.test)


READERS: dict[str, Callable[[Source], Dataset]] = {}
