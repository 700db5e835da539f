"""Data that users bring: a file of rows, a folder of images, a Hugging Face data set on disk, or a function."""

from collections.abc import Callable

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.data.array_files import ARRAYS, read_arrays
from fedmbo_ray.data.dataset import Dataset
from fedmbo_ray.data.datasets import called_dataset
from fedmbo_ray.data.folders import read_folder
from fedmbo_ray.data.huggingface import read_saved
from fedmbo_ray.data.reading import Source as Source
from fedmbo_ray.data.tables import TABLES, read_table


def read_source(source: Source) -> Dataset:
    """The data set behind a source."""
    if source.name in READERS:
        return READERS[source.name](source)
    if source.test is not None and source.fraction is None:
        raise ConfigError("must be a fraction of the rows for a function, which may return test rows itself", "test")
    return called_dataset(source.name, source.arguments, source.fraction)


def read_file(source: Source) -> Dataset:
    """The data set in a file, whose name says what it is."""
    name = source.place.name.lower()
    if name.endswith(ARRAYS):
        return read_arrays(source)
    if name.endswith(TABLES):
        return read_table(source)
    raise ConfigError(f"must end in one of {', '.join((*TABLES, *ARRAYS))}, but is {source.place.name}", "path")


# The keys of a config that each kind of data takes.
_ALL = ("path", "target", "client", "group", "test", "predict")
KEYS: dict[str, tuple[str, ...]] = {
    "file": (*_ALL, "categories"),
    "images": ("path", "client", "test", "size"),
    "huggingface": (*_ALL, "categories", "size"),
}
READERS: dict[str, Callable[[Source], Dataset]] = {
    "file": read_file,
    "images": read_folder,
    "huggingface": read_saved,
}
