"""From a config to a run: build the task and the federation, run rounds, yield records."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.availability import AlwaysAvailable
from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.checkpoints import Record, RunFolder
from fedmbo_ray.config import DataConfig, RunConfig
from fedmbo_ray.data import ArrayClients, Draw, Federated
from fedmbo_ray.datasets import data_root, load
from fedmbo_ray.federation import Federation, Meter
from fedmbo_ray.partitions import train_and_validation
from fedmbo_ray.problems.base import Task
from fedmbo_ray.registry import ConfigError, at
from fedmbo_ray.rng import stream

State = dict[str, Tensor]
MakeBackend = Callable[[Task], Any]


def build_task(config: RunConfig) -> Task:
    """The problem and its data; what the data can't give is a ConfigError."""
    m = config.clients.num_clients
    data = federate(config.data, config.seed, m) if config.data is not None else None
    try:
        with at("problem"):
            return config.problem.build(config.seed, m, data)
    except ValueError as error:
        raise ConfigError(str(error), "problem") from None


def federate(config: DataConfig, seed: int, num_clients: int) -> Federated:
    """The data set split over clients, its training labels corrupted as configured."""
    dataset = load(config.name, config.root or data_root())
    with at("data"), at("partition"):
        rows = config.partition.split(dataset.train_targets, num_clients, stream(seed, "partition"))
        train, validation = train_and_validation(rows, config.validation)
    targets = dataset.train_targets.copy()
    corrupted = np.zeros(len(targets), dtype=bool)
    rng = stream(seed, "label noise")
    corrupted[train.order] = rng.random(len(train.order)) < config.label_noise
    shift = rng.integers(1, dataset.num_classes, size=len(targets))
    targets[corrupted] = (targets + shift)[corrupted] % dataset.num_classes
    clients = ArrayClients(
        inputs=dataset.train_inputs,
        targets=targets,
        splits={"train": train, "validation": validation},
        mean=float(dataset.train_inputs.mean()),
        std=float(dataset.train_inputs.std()),
    )
    return Federated(clients, dataset.test_inputs, dataset.test_targets, dataset.num_classes, corrupted)


def build_federation(config: RunConfig, backend: Any) -> Federation:
    clients = config.clients
    return Federation(
        backend=backend,
        num_clients=clients.num_clients,
        cohort_size=clients.cohort_size,
        rounds=config.rounds,
        replace=clients.replace,
        block_size=clients.block_size,
        availability=clients.availability or AlwaysAvailable(),
    )


def in_process(task: Task) -> InProcess:
    return InProcess(task.problem, task.data)


def run(
    config: RunConfig,
    folder: RunFolder | None = None,
    resume: bool = False,
    make_backend: MakeBackend = in_process,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Record]:
    """Run the config and yield its records, the one of round 0 first; the last one has a `status`.

    With a folder, records and checkpoints are kept there; with `resume`, the run goes on from the newest
    checkpoint and first yields the records made before it. A run that ends early (`stop` is true after a
    round, an exception, a closed generator) saves its state first.
    """
    torch.set_num_threads(1)  # the same bits on any backend need one thread everywhere
    with ExitStack() as stack:
        task = build_task(config)
        backend = make_backend(task)
        stack.callback(backend.close)
        federation = build_federation(config, backend)
        yield from _Run(config, task, federation, folder).records(resume, stop)


class _Run:
    """The loop over rounds, with its clock, its folder and its checks."""

    def __init__(self, config: RunConfig, task: Task, federation: Federation, folder: RunFolder | None) -> None:
        self.config, self.task, self.federation, self.folder = config, task, federation, folder
        self.started, self.saved_seconds = time.monotonic(), 0.0
        self.round, self.state = 0, self._initial_state()

    def _initial_state(self) -> State:
        return self.config.algorithm.init(*self.task.problem.init(stream(self.config.seed, "init")))

    def records(self, resume: bool, stop: Callable[[], bool]) -> Iterator[Record]:
        yield from self._restore() if resume else []
        if self.round == 0:
            yield self._record({})
        try:
            while self.round < self.config.rounds and not stop():
                state = self._next_state()
                reason = diverged(state, self.config.record.explosion)
                self.round, self.state = self.round + 1, state
                if reason is not None:
                    yield self._record(self._ending("diverged") | {"reason": reason})
                    return
                yield from self._after_round()
        except BaseException:
            self._save()
            raise
        self._save()
        if self.round == self.config.rounds:
            yield self._record(self._ending("finished"))

    def _next_state(self) -> State:
        rng = stream(self.config.seed, "round", self.round)
        return self.config.algorithm.round(self.federation.clients(rng, self.round), self.state)

    def _after_round(self) -> Iterator[Record]:
        """The record, then the checkpoint that are due: a crash between the two loses neither."""
        settings = self.config.record
        due = self.round % settings.every == 0 and self.round < self.config.rounds
        records = [self._record({})] if due else []
        if self.round % settings.checkpoint_every == 0:
            self._save()
        yield from records

    def _ending(self, status: str) -> Record:
        return {"status": status, "x_sha256": sha256(self.state["x"]), "y_sha256": sha256(self.state["y"])}

    def _record(self, ending: Record) -> Record:
        x, y, meter = self.state["x"], self.state["y"], self.federation.meter
        samples = self.task.data.num_samples
        record = {
            "round": self.round,
            "communications": meter.communications,
            "samples": meter.samples,
            "data_epochs": meter.samples / samples if samples else None,
            "floats_up": meter.floats_up,
            "floats_down": meter.floats_down,
            "dropped": meter.dropped,
            "waited": meter.waited,
            **jsonable(self._figures(x, y)),
            "wall_seconds": round(self._seconds(), 3),
            **ending,
        }
        if self.folder is not None:
            self.folder.append(record)
        return record

    def _figures(self, x: Tensor, y: Tensor) -> dict[str, float]:
        with torch.no_grad():
            exact = self.task.problem.metrics(x, y, self.task.test)
            return exact if "lower_loss" in exact else {**self._losses(x, y), **exact}

    def _losses(self, x: Tensor, y: Tensor) -> dict[str, float]:
        """Mean losses on the same samples at every record: equally many of each client, of 1000 clients at most."""
        clients = np.arange(self.task.data.num_clients)
        rng = stream(self.config.seed, "evaluation")
        if len(clients) > 1000:
            clients = rng.choice(len(clients), size=1000, replace=False)
        size = math.ceil(self.config.record.loss_samples / len(clients))
        seeds, cpu = rng.integers(0, 2**64, size=(2, len(clients)), dtype=np.uint64), torch.device("cpu")
        train = self.task.data.draw(clients, seeds[0], Draw("train", size), cpu)
        validation = self.task.data.draw(clients, seeds[1], Draw("validation", size), cpu)
        return {
            "lower_loss": float(self.task.problem.lower(x, y, train.merged())),
            "upper_loss": float(self.task.problem.upper(x, y, validation.merged())),
        }

    def _seconds(self) -> float:
        return self.saved_seconds + time.monotonic() - self.started

    def _save(self) -> None:
        if self.folder is None:
            return
        checkpoint = {
            "round": self.round,
            "state": self.state,
            "meter": self.federation.meter.state(),
            "seconds": self._seconds(),
        }
        self.folder.save(checkpoint, self.config.record.checkpoints_kept)

    def _restore(self) -> list[Record]:
        """Go back to the newest checkpoint; returns the records made up to it."""
        checkpoint = self.folder.latest() if self.folder else None
        if self.folder is None or checkpoint is None:
            if self.folder is not None:
                self.folder.rewind(-1)
            return []
        self.round, self.state = checkpoint["round"], checkpoint["state"]
        self.federation.meter = Meter(**checkpoint["meter"])
        self.saved_seconds = checkpoint["seconds"]
        return self.folder.rewind(min(self.round, self.config.rounds - 1))


def diverged(state: State, limit: float) -> str | None:
    """Why a state is no longer worth continuing, None if it is."""
    for name, value in state.items():
        size = float(value.abs().max()) if value.numel() else 0.0
        if not math.isfinite(size) and name != "smoothness":
            return f"{name} is not finite"
        if size > limit:
            return f"|{name}| = {size:.3g} exceeds {limit:.3g}"
    return None


def sha256(vector: Tensor) -> str:
    """The digest of a vector's bytes."""
    return hashlib.sha256(vector.contiguous().numpy().tobytes()).hexdigest()


def jsonable(figures: dict[str, float]) -> dict[str, float | None]:
    """JSON knows no nan: None stands for what is not finite."""
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def default_folder(root: Path = Path("runs")) -> Path:
    return root / time.strftime("%Y-%m-%d_%H-%M-%S")
