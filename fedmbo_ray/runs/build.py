"""Builds the objects of a run from its config: the task and the federation."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedmbo_ray.config.schema import DataConfig, RunConfig
from fedmbo_ray.core.cards import card_of
from fedmbo_ray.core.components import assumptions
from fedmbo_ray.core.errors import ConfigError, at
from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.data.array_clients import ArrayClients, Federated, Rows, Scaling
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.data.dataset import Dataset, Targets
from fedmbo_ray.data.long_tail import thinned
from fedmbo_ray.data.partitions import train_and_validation
from fedmbo_ray.federation.availability import AlwaysAvailable
from fedmbo_ray.federation.clients import Federation
from fedmbo_ray.federation.execution import Backend, Block, Job, run_block
from fedmbo_ray.methods.base import Algorithm
from fedmbo_ray.problems.base import Task, capabilities
from fedmbo_ray.problems.oracles import hessian_xy, hessian_yy
from fedmbo_ray.runs.clock import ONE_THREAD
from fedmbo_ray.runs.size import require_batches, require_clients


def build_task(config: RunConfig) -> Task:
    """The problem and its data; raises ConfigError if the data do not suit the problem."""
    with ONE_THREAD:  # a problem may keep results that it computes here
        return _built(config)


def _built(config: RunConfig) -> Task:
    m = config.clients.num_clients
    require_clients(config)
    data = federate(config.data, config.seed, m) if config.data is not None else None
    try:
        with at("problem"):
            task = config.problem.build(config.seed, m, data)
    except ValueError as error:
        raise ConfigError(str(error), "problem") from None
    require_one_y(config.algorithm, task)
    require_batches(config, task)
    try_second_derivatives(config.algorithm, task)
    if config.budget is not None and config.budget.data_epochs is not None and not task.data.num_samples:
        raise ConfigError(
            "needs data of a fixed size, but this problem makes new samples for every draw", "budget", "data_epochs"
        )
    return task


def require_one_y(algorithm: Algorithm, task: Task) -> None:
    """Raise a ConfigError if a method keeps a y for every client, but the problem has figures of a single one only."""
    card = card_of(algorithm)
    if card is not None and card.personal and not capabilities(task.problem).personal:
        raise ConfigError(
            f"{type(algorithm).__name__} keeps a y for every client, but {type(task.problem).__name__} has figures for "
            "one only; use personal_heads or quadratic",
            "algorithm",
        )


def try_second_derivatives(algorithm: Algorithm, task: Task) -> None:
    """Compute the products that all but first-order methods need, for one client; raises ConfigError if it fails."""
    card = card_of(algorithm)
    if card is not None and card.first_order:
        return
    rng = stream(0, "second derivatives")
    x, y = task.problem.init(rng)
    block = Block(np.zeros(1, dtype=np.int64), draw_seeds(rng, 1), ())
    for product, name in ((hessian_yy, "∇²_yy g·v"), (hessian_xy, "∇²_xy g·v")):
        job = Job(product, (x, y, torch.ones_like(y)), Draw("train", 1), summed=True)
        try:
            run_block(task, job, block, torch.device("cpu"))
        except (RuntimeError, NotImplementedError) as error:
            said = " ".join(str(error).split())
            raise ConfigError(
                f"{type(algorithm).__name__} needs {name}, which {type(task.problem).__name__} can't compute ({said}); "
                "first-order methods, such as memfbo and f2sa, don't",
                "algorithm",
            ) from None


def federate(config: DataConfig, seed: int, num_clients: int) -> Federated:
    """The data set of a config split over clients."""
    with at("data"):
        dataset = config.load()
    return distributed(config, dataset, seed, num_clients)


def distributed(config: DataConfig, dataset: Dataset, seed: int, num_clients: int) -> Federated:
    """A data set split over clients that standardize their inputs."""
    found = allotted(config, dataset, seed, num_clients)
    return found._replace(clients=replace(found.clients, scaling=Scaling.of(found.dataset.train_inputs)))


def allotted(config: DataConfig, dataset: Dataset, seed: int, num_clients: int) -> Federated:
    """A data set split over clients, its classes thinned and its training labels corrupted as configured.

    Inputs are neither read nor standardized: who owns which rows, and which labels, is known without them.
    """
    with at("data"):
        dataset = thinned(dataset, config.imbalance, stream(seed, "imbalance"))
        train, validation = divide(config, dataset, seed, num_clients)
        targets, corrupted = with_noise(dataset, train.order, config.label_noise, stream(seed, "label noise"))
    clients = ArrayClients(
        inputs=dataset.train_inputs,
        targets=targets,
        splits={"train": train, "validation": validation},
        scaling=None,
        shares=shares_of(train.size + validation.size) if config.weights == "by_size" else None,
    )
    return Federated(clients, dataset, corrupted)


def divide(config: DataConfig, dataset: Dataset, seed: int, num_clients: int) -> tuple[Rows, Rows]:
    """The rows that clients train on, and those that they validate on."""
    with at("partition"):
        try:
            require_rows_for(dataset, num_clients)
            rows = config.partition.split(dataset, num_clients, stream(seed, "partition"))
        except ValueError as error:
            raise ConfigError(f"{config.partition} can't split {num_clients=}: {error}") from None
        require_rows(rows, num_clients, len(dataset.train_targets))
        return train_and_validation(rows, config.validation)


def require_rows_for(dataset: Dataset, num_clients: int) -> None:
    """Raise a ConfigError if there are far more clients than rows: partitions would take minutes to find out."""
    rows = len(dataset.train_targets)
    if num_clients > 10 * rows:
        raise ConfigError(
            f"every client needs rows of its own, but {dataset.name} has {rows} for {num_clients} clients"
        )


def with_noise(
    dataset: Dataset, train: NDArray[np.int64], noise: float, rng: np.random.Generator
) -> tuple[Targets, NDArray[np.bool_]]:
    """The targets with a fraction of the training labels replaced by others, and which ones were."""
    targets, corrupted = dataset.train_targets.copy(), np.zeros(len(dataset.train_targets), dtype=bool)
    if not dataset.num_classes:
        if noise:
            raise ConfigError(f"needs labels to replace, but the targets of {dataset.name} are numbers", "label_noise")
        return targets, corrupted
    corrupted[train] = rng.random(len(train)) < noise
    shift = rng.integers(1, dataset.num_classes, size=len(targets))
    targets[corrupted] = (targets + shift)[corrupted] % dataset.num_classes
    return targets, corrupted


def shares_of(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """What clients' losses are multiplied by, so that every row counts alike; their mean is 1."""
    return sizes / sizes.mean()


def require_rows(rows: object, num_clients: int, num_rows: int) -> None:
    """Raise a ConfigError unless every client has rows of its own."""
    arrays = [np.asarray(each) for each in rows] if isinstance(rows, list) else []
    if len(arrays) != num_clients or any(each.ndim != 1 or each.dtype.kind not in "iu" for each in arrays):
        raise ConfigError(f"a partition must give a list of {num_clients} arrays of row numbers, but gave {type(rows)}")
    everything = np.concatenate(arrays)
    if len(np.unique(everything)) < len(everything) or not ((everything >= 0) & (everything < num_rows)).all():
        raise ConfigError(f"a partition must give each of the rows 0 to {num_rows - 1} to one client at most")


def build_federation(config: RunConfig, task: Task, backend: Backend) -> Federation:
    clients = config.clients
    return Federation(
        backend=backend,
        data=task.data,
        cohort_size=clients.cohort_size,
        rounds=config.rounds,
        replace=clients.replace,
        block_size=clients.block_size,
        seed=config.seed,
        availability=clients.availability or AlwaysAvailable(),
        assumes=assumptions(config.algorithm),
    )
