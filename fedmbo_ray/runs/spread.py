"""How data are distributed over clients, in numbers."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedmbo_ray.config.schema import DataConfig, RunConfig
from fedmbo_ray.core.errors import ConfigError, first_line
from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.data.array_clients import Federated
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.data.partitions import Natural
from fedmbo_ray.federation.execution import Block, Job, run_block
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.oracles import grad_y_lower
from fedmbo_ray.runs.clock import ONE_THREAD

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


def spread_of(config: DataConfig, data: Federated) -> Spread:
    """How a data set is spread over its clients; their gradients are not compared."""
    splits, dataset = data.clients.splits, data.dataset
    counts, edges = counted(data)
    return Spread(
        title_of(config, data),
        splits["train"].size.tolist(),
        splits["validation"].size.tolist(),
        counts.tolist(),
        dataset.class_names,
        dataset.client_names if isinstance(config.partition, Natural) else (),
        edges,
        earth_movers(data) if edges else None,
        test=len(dataset.test_targets),
    )


def title_of(config: DataConfig, data: Federated) -> str:
    partition = config.model_dump(mode="json")["partition"]
    settings = ", ".join(f"{key} {value}" for key, value in partition.items() if key != "name")
    named = f"{partition['name']}{f' ({settings})' if settings else ''}"
    return f"{data.dataset.name}, {named}, {data.clients.num_clients} clients"


def counted(data: Federated) -> tuple[NDArray[np.int64], tuple[float, ...]]:
    """The rows of every client by label, or by bins of the numbers to predict, whose edges come second."""
    m, targets, edges = data.clients.num_clients, data.clients.targets, np.array([])
    if not data.num_classes:
        edges = np.linspace(targets.min(), targets.max(), BINS + 1)
        targets = np.clip(np.searchsorted(edges, targets, side="right") - 1, 0, BINS - 1)
    counts = np.zeros((m, data.num_classes or BINS), dtype=np.int64)
    for rows in data.clients.splits.values():
        np.add.at(counts, (np.repeat(np.arange(m), rows.size), targets[rows.order].astype(np.int64)), 1)
    return counts, tuple(edges.tolist())


def earth_movers(data: Federated) -> float:
    """The mean over clients of the distance between their numbers and those of all, in standard deviations.

    It is the integral over u of |Q_i(u) − Q(u)|, where Q_i and Q are the quantiles of a client and of all rows. For the
    k sorted numbers v_0, …, v_{k−1} of a client, Q_i is v_j between j/k and (j + 1)/k, and Q exceeds it from F(v_j) on.
    """
    rows = np.concatenate([each.order for each in data.clients.splits.values()])
    owners = np.concatenate([np.repeat(np.arange(len(each.size)), each.size) for each in data.clients.splits.values()])
    numbers = data.clients.targets[rows]
    order = np.lexsort((numbers, owners))
    v, size = numbers[order], np.bincount(owners)
    j, k = np.arange(len(v)) - np.repeat(np.cumsum(size) - size, size), np.repeat(size, size)
    whole = np.sort(numbers)
    low, high = j / k, (j + 1) / k
    middle = np.clip(np.searchsorted(whole, v, side="right") / len(v), low, high)
    grid, integral = np.arange(len(v) + 1) / len(v), np.append(0, np.cumsum(whole)) / len(v)  # of Q up to u
    below, there, above = (np.interp(u, grid, integral) for u in (low, middle, high))
    distances = v * (2 * middle - low - high) + below + above - 2 * there
    return float(distances.sum() / len(size) / whole.std())


def with_gradients(spread: Spread, config: RunConfig, data: Federated) -> Spread:
    """Add how much clients' gradients differ at the starting point, or why this is unknown."""
    try:
        with ONE_THREAD:
            task = config.problem.build(config.seed, data.clients.num_clients, data)
            return spread._replace(diversity=diversity(task))
    except (ConfigError, ValueError, RuntimeError) as error:
        return spread._replace(reason=error.rule if isinstance(error, ConfigError) else first_line(error))


def diversity(task: Task) -> float:
    """The mean of ‖∇g_i − ∇g‖² / ‖∇g‖², with gradients in y on all local rows of up to a hundred clients."""
    rng = stream(0, "diversity")
    point = task.problem.init(rng)
    job = Job(grad_y_lower, point, Draw("train", None), summed=False)
    total = task.data.num_clients
    clients = np.unique(np.linspace(0, total - 1, min(total, MEASURED)).astype(np.int64))
    blocks = [Block(np.array([client]), draw_seeds(rng, 1), ()) for client in clients]
    each = torch.cat([run_block(task, job, block, torch.device("cpu"))[0] for block in blocks])
    mean = each.mean(0)
    return float((each - mean).square().sum(1).mean() / mean.square().sum())
