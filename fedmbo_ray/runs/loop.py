"""One run: rounds, records and checkpoints."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.building import build_federation, build_task
from fedmbo_ray.checkpoints import FolderDamaged, Record, RunFolder
from fedmbo_ray.config import RunConfig
from fedmbo_ray.data import Draw
from fedmbo_ray.federation import Federation, Meter, RunFailed
from fedmbo_ray.problems.base import Task
from fedmbo_ray.registry import ConfigError, choices
from fedmbo_ray.rng import stream

State = dict[str, Tensor]
MakeBackend = Callable[[Task], Any]


def in_process(task: Task) -> InProcess:
    return InProcess(task.problem, task.data)


def run(
    config: RunConfig,
    folder: RunFolder | None = None,
    resume: bool = False,
    make_backend: MakeBackend = in_process,
    stop: Callable[[], bool] = lambda: False,
    tick: Callable[[int], None] = lambda round: None,
) -> Iterator[Record]:
    """Run the config and yield its records, the one of round 0 first; the last one has a `status`.

    With a folder, records and checkpoints are kept there; with `resume`, the run goes on from the newest
    checkpoint and first yields the records made before it. A run that ends early (`stop` is true after a
    round, an exception, a closed generator) saves its state first. `tick` is called after every round.
    """
    torch.set_num_threads(1)  # the same bits on any backend need one thread everywhere
    with ExitStack() as stack:
        if folder is not None:
            stack.enter_context(folder.claimed(config.resolved(), resume))
        task = build_task(config)
        backend = make_backend(task)
        stack.callback(backend.close)
        federation = build_federation(config, task, backend)
        yield from _Run(config, task, federation, folder).records(resume, stop, tick)


class _Run:
    """The loop over rounds, with its clock, its folder and its checks."""

    def __init__(self, config: RunConfig, task: Task, federation: Federation, folder: RunFolder | None) -> None:
        self.config, self.task, self.federation, self.folder = config, task, federation, folder
        self.started, self.saved_seconds = time.monotonic(), 0.0
        self.round, self.state, self.meter = 0, self._initial_state(), Meter()
        self.sums = dict.fromkeys(config.record.averaged, 0.0)

    def _initial_state(self) -> State:
        x, y = self.task.problem.init(stream(self.config.seed, "init"))
        return self.config.algorithm.init(x, y, self.task.data.num_clients)

    def records(self, resume: bool, stop: Callable[[], bool], tick: Callable[[int], None]) -> Iterator[Record]:
        self._averaged()
        known = self._restore() if resume else []
        yield from known
        if self._record_is_due() and not (known and known[-1]["round"] == self.round):
            yield self._record({})
        reason = None
        try:
            while self.round < self.config.rounds and reason is None and not stop():
                state = self._next_state()
                self._add_up()
                reason = diverged(state, self.config.record.explosion)
                self.round, self.state, self.meter = self.round + 1, state, replace(self.federation.meter)
                tick(self.round)
                yield from self._after_round() if reason is None else []
        except BaseException:
            self._save()
            raise
        if reason is not None:
            yield self._record(self._ending("diverged") | {"reason": reason})
        else:
            self._save()
            yield from [self._record(self._ending("finished"))] if self.round == self.config.rounds else []

    def _next_state(self) -> State:
        rng = stream(self.config.seed, "round", self.round)
        state = self.config.algorithm.round(self.federation.clients(rng, self.round), self.state)
        if not isinstance(state, dict) or shapes(state) != shapes(self.state):
            rule = f"{type(self.config.algorithm).__name__}.round must return the tensors that init made"
            raise RunFailed(f"{rule}, {shapes(self.state)}, but returned {shapes(state)}")
        return state

    def _after_round(self) -> Iterator[Record]:
        """The record, then the checkpoint that are due: a crash between the two loses neither."""
        records = [self._record({})] if self._record_is_due() else []
        if self.round % self.config.record.checkpoint_every == 0:
            self._save()
        yield from records

    def _record_is_due(self) -> bool:
        """The last round has a record of its own, with an ending."""
        return self.round % self.config.record.every == 0 and self.round < self.config.rounds

    def _ending(self, status: str) -> Record:
        digests = {"x_sha256": sha256(self.state["x"]), "y_sha256": sha256(self.state["y"])}
        return {"status": status, "backend": self.federation.backend.description, **digests}

    def _record(self, ending: Record) -> Record:
        x, y, meter = self.state["x"], self.state["y"], self.meter
        samples = self.task.data.num_samples
        record = {
            "round": self.round,
            "communications": meter.communications,
            "samples": meter.samples,
            "data_epochs": meter.samples / samples if samples else None,
            "floats_up": meter.floats_up,
            "floats_down": meter.floats_down,
            "dropped": meter.dropped,
            **jsonable({"waited": meter.waited, **self._figures(x, y), **self._means()}),
            "wall_seconds": round(self._seconds(), 3),
            **ending,
        }
        if self.folder is not None:
            self.folder.append(record)
        return record

    def _figures(self, x: Tensor, y: Tensor) -> dict[str, float]:
        with torch.no_grad():
            exact = self.task.problem.metrics(x, y, self.task.test) | self._own_figures()
            return exact if "lower_loss" in exact else {**self._losses(x, y), **exact}

    def _own_figures(self) -> dict[str, float]:
        algorithm = self.config.algorithm
        return algorithm.figures(self.state, self.round) if hasattr(algorithm, "figures") else {}

    def _add_up(self) -> None:
        """Add the figures at the current point to the sums over rounds."""
        for name, value in self._averaged().items():
            self.sums[name] += value

    def _averaged(self) -> dict[str, float]:
        """The figures at the current point whose mean is recorded, too."""
        if not self.sums:
            return {}
        with torch.no_grad():
            now = self.task.problem.metrics(self.state["x"], self.state["y"], self.task.test)
        unknown = next((name for name in self.sums if name not in now), None)
        if unknown is not None:
            raise ConfigError(f"unknown figure {unknown!r}; {choices(unknown, list(now))}", "record", "averaged")
        return {name: now[name] for name in self.sums}

    def _means(self) -> dict[str, float]:
        """Of figures over the points of all rounds so far, that of the record not among them."""
        return {f"mean_{name}": total / self.round if self.round else math.nan for name, total in self.sums.items()}

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
            "meter": self.meter.state(),
            "sums": self.sums,
            "seconds": self._seconds(),
        }
        self.folder.save(checkpoint, self.config.record.checkpoints_kept)

    def _restore(self) -> list[Record]:
        """Go back to the newest checkpoint; returns the records made up to it."""
        if self.folder is None:
            return []
        checkpoint = self.folder.latest()
        if checkpoint is None:
            return self.folder.rewind(-1)
        if shapes(checkpoint["state"]) != shapes(self.state):
            raise FolderDamaged(
                f"the newest checkpoint in {self.folder.checkpoints} is of another problem or algorithm"
            )
        self.round, self.state = checkpoint["round"], checkpoint["state"]
        self.meter, self.federation.meter = Meter(**checkpoint["meter"]), Meter(**checkpoint["meter"])
        self.saved_seconds, self.sums = checkpoint["seconds"], checkpoint.get("sums", self.sums)
        return self.folder.rewind(min(self.round, self.config.rounds - 1))


def diverged(state: State, limit: float) -> str | None:
    """Why a state is no longer worth continuing, None if it is."""
    for name, value in state.items():
        size = float(torch.linalg.vector_norm(value, math.inf)) if value.numel() else 0.0
        if not math.isfinite(size):
            return f"{name} is not finite"
        if size > limit and name in ("x", "y"):
            return f"|{name}| = {size:.3g} exceeds {limit:.3g}"
    return None


def shapes(state: Any) -> dict[str, Any]:
    """Name, shape and dtype of the tensors in a state; what else it holds, by its type."""
    entries = state.items() if isinstance(state, dict) else [("state", state)]
    return {
        name: (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else type(value).__name__
        for name, value in entries
    }


def sha256(vector: Tensor) -> str:
    """The digest of a vector's bytes."""
    return hashlib.sha256(vector.contiguous().numpy().tobytes()).hexdigest()


def jsonable(figures: dict[str, float]) -> dict[str, float | None]:
    """JSON knows no nan: None stands for what is not finite."""
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}
