"""How a config distributes its data over clients, in numbers."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedmbo_ray.config.overrides import Override, read_config
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.config.shipped import is_sweep
from fedmbo_ray.core.errors import ConfigError, at, first_line
from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.data.array_clients import Federated
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.data.dataset import Dataset
from fedmbo_ray.data.partitions import Natural
from fedmbo_ray.federation.execution import Block, Job, run_block
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.oracles import grad_y_lower
from fedmbo_ray.runs.build import distributed
from fedmbo_ray.runs.clock import ONE_THREAD
from fedmbo_ray.sweeps.schema import read_sweep
from fedmbo_ray.sweeps.space import corners

MEASURED = 100  # clients whose gradients are compared
BINS = 20  # of numbers to predict


class Spread(NamedTuple):
    """How many rows every client has in each split and of each label, or in each bin of the numbers to predict."""

    title: str
    train: list[int]
    validation: list[int]
    labels: list[list[int]]
    class_names: tuple[str, ...] = ()
    client_names: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()  # of the bins; none if there are labels
    distance: float | None = None  # where it is not that of `labels`
    diversity: float | None = None
    reason: str = ""  # why there is no diversity
    test: int = 0

    @property
    def classes(self) -> int:
        return len(self.labels[0])

    def sizes(self) -> dict[str, tuple[float, float, float]]:
        """For each figure of the clients: the smallest, the median and the largest."""
        figures = {"rows to train": self.train, "rows to validate": self.validation}
        if not self.edges:
            figures["labels"] = [sum(count > 0 for count in counts) for counts in self.labels]
        return {name: (min(each), float(np.median(each)), max(each)) for name, each in figures.items()}

    def shares(self) -> NDArray[np.float64]:
        """The share of each label (column) in each client (row)."""
        counts = np.array(self.labels, dtype=np.float64)
        return counts / np.maximum(counts.sum(1, keepdims=True), 1)

    def label_distance(self) -> float:
        """The mean over clients of the total variation between their labels and those of all rows."""
        if self.distance is not None:
            return self.distance
        whole = np.sum(self.labels, axis=0) / np.sum(self.labels)
        return float(np.abs(self.shares() - whole).sum(1).mean() / 2)

    def size_variation(self) -> float:
        """The standard deviation of the clients' sizes, divided by their mean."""
        sizes = np.add(self.train, self.validation)
        return float(sizes.std() / sizes.mean())


def spread_of(file: Path | None, overrides: list[Override]) -> Spread:
    """The spread of a config (the default if `file` is None), or of the first point of a sweep.

    Without a file, data whose rows belong to clients have as many clients as there are.
    """
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
    counts, edges = counted(federated, m)
    splits = federated.clients.splits
    return Spread(
        title_of(config, dataset, m),
        splits["train"].size.tolist(),
        splits["validation"].size.tolist(),
        counts.tolist(),
        dataset.class_names,
        dataset.client_names if isinstance(config.data.partition, Natural) else (),
        edges,
        earth_movers(federated) if edges else None,
        *diversity_of(config, federated, m),
        len(dataset.test_targets),
    )


def title_of(config: RunConfig, dataset: Dataset, m: int) -> str:
    partition = config.resolved()["data"]["partition"]
    settings = ", ".join(f"{key} {value}" for key, value in partition.items() if key != "name")
    return f"{dataset.name}, {partition['name']}{f' ({settings})' if settings else ''}, {m} clients"


def counted(data: Federated, m: int) -> tuple[NDArray[np.int64], tuple[float, ...]]:
    """The rows of every client by label, or by bins of the numbers to predict, whose edges come second."""
    targets, edges = data.clients.targets, np.array([])
    if not data.num_classes:
        edges = np.linspace(targets.min(), targets.max(), BINS + 1)
        targets = np.clip(np.searchsorted(edges, targets, side="right") - 1, 0, BINS - 1)
    counts = np.zeros((m, data.num_classes or BINS), dtype=np.int64)
    for rows in data.clients.splits.values():
        np.add.at(counts, (np.repeat(np.arange(m), rows.size), targets[rows.order].astype(np.int64)), 1)
    return counts, tuple(edges.tolist())


def earth_movers(data: Federated) -> float:
    """The mean distance between the numbers of a client and those of all, in standard deviations."""
    from scipy.stats import wasserstein_distance  # takes a second

    clients = data.clients
    each = [clients.targets[clients.rows_of(i)] for i in range(clients.num_clients)]
    whole = np.concatenate(each)
    return float(np.mean([wasserstein_distance(own, whole) for own in each]) / whole.std())


def diversity_of(config: RunConfig, data: Federated, m: int) -> tuple[float | None, str]:
    """How much clients' gradients differ where a run begins, or None and why that can't be said."""
    try:
        with ONE_THREAD:
            return diversity(config.problem.build(config.seed, m, data)), ""
    except (ConfigError, ValueError, RuntimeError) as error:
        return None, error.rule if isinstance(error, ConfigError) else first_line(error)


def diversity(task: Task) -> float:
    """The mean of ‖∇g_i − ∇g‖² / ‖∇g‖², with gradients in y on all local rows of up to a hundred clients."""
    rng = stream(0, "diversity")
    point = task.problem.init(rng)
    job = Job(grad_y_lower, point, Draw("train", None), summed=False)
    total = task.data.num_clients
    clients = np.unique(np.linspace(0, total - 1, min(total, MEASURED)).astype(np.int64))
    blocks = [Block(np.array([client]), draw_seeds(rng, 1), ()) for client in clients]
    each = torch.cat([run_block(task.problem, task.data, job, block, torch.device("cpu"))[0] for block in blocks])
    mean = each.mean(0)
    return float((each - mean).square().sum(1).mean() / mean.square().sum())


def shown_config(file: Path | None, overrides: list[Override]) -> RunConfig:
    if file is None or not is_sweep(file):
        return read_config(file, overrides)
    sweep = read_sweep(file, [word for word in overrides if isinstance(word, str)])
    return sweep.config(next(corners(sweep.dims)))
