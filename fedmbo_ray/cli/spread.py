"""How a config distributes its data over clients, in numbers."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.config.shipped import is_sweep
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.runs.build import federate
from fedmbo_ray.sweeps.schema import read_sweep
from fedmbo_ray.sweeps.space import corners


class Spread(NamedTuple):
    """How many rows every client has in each split and of each label."""

    title: str
    train: list[int]
    validation: list[int]
    labels: list[list[int]]  # one column with all rows if the targets are numbers

    @property
    def classes(self) -> int:
        return len(self.labels[0])

    def sizes(self) -> dict[str, tuple[float, float, float]]:
        """For each figure of the clients: the smallest, the median and the largest."""
        kinds = [sum(count > 0 for count in counts) for counts in self.labels]
        figures = {"rows to train": self.train, "rows to validate": self.validation, "labels": kinds}
        return {name: (min(each), float(np.median(each)), max(each)) for name, each in figures.items()}


def spread_of(file: Path | None, overrides: list[str]) -> Spread:
    """The spread of a config (the default if `file` is None), or of the first point of a sweep."""
    config = config_of(file, overrides)
    if config.data is None:
        raise ConfigError(
            f"{type(config.problem).__name__} makes its own data, so there is no data set to show", "problem"
        )
    federated = federate(config.data, config.seed, config.clients.num_clients)
    targets, splits = federated.clients.targets, federated.clients.splits
    m, classes = config.clients.num_clients, max(federated.num_classes, 1)
    labels = targets.astype(np.int64) if federated.num_classes else np.zeros(len(targets), dtype=np.int64)
    counts = np.zeros((m, classes), dtype=np.int64)
    for rows in splits.values():
        np.add.at(counts, (np.repeat(np.arange(m), rows.size), labels[rows.order]), 1)
    partition = config.resolved()["data"]["partition"]
    settings = ", ".join(f"{key} {value}" for key, value in partition.items() if key != "name")
    title = f"{config.data.name}, {partition['name']}{f' ({settings})' if settings else ''}, {m} clients"
    train, validation = (splits[name].size.tolist() for name in ("train", "validation"))
    return Spread(title, train, validation, counts.tolist())


def config_of(file: Path | None, overrides: list[str]) -> RunConfig:
    if file is None or not is_sweep(file):
        return read_config(file, overrides)
    sweep = read_sweep(file, overrides)
    return sweep.config(next(corners(sweep.dims)))
