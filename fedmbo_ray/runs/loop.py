"""The loop over rounds: the only one there is, for commands, actors, benchmarks and tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import fields, replace
from types import TracebackType

from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.errors import FolderDamaged, RunFailed
from fedmbo_ray.core.interruptions import at_stake
from fedmbo_ray.core.rng import stream
from fedmbo_ray.federation.execution import Backend, Seconds
from fedmbo_ray.federation.meter import Meter
from fedmbo_ray.problems.base import Task
from fedmbo_ray.runs.build import build_federation, build_task
from fedmbo_ray.runs.checkpoint import Checkpoint, RecordChain, sealed
from fedmbo_ray.runs.clock import ONE_THREAD, Clock
from fedmbo_ray.runs.evaluation import Evaluation, jsonable, running_means
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.limits import Limits
from fedmbo_ray.runs.records import Record
from fedmbo_ray.runs.state import RunPosition, State, diverged, sha256, shapes

MakeBackend = Callable[[Task], Backend]
PATIENCE = 60.0  # seconds to wait for a folder that is still held by a process that was replaced (dead or cut off)
Tick = Callable[[int, float], None]  # called after every round with the number of rounds and the share of the run


def in_process(task: Task) -> InProcess:
    return InProcess(task)


def run(
    config: RunConfig,
    folder: RunFolder | None = None,
    resume: bool = False,
    make_backend: MakeBackend = in_process,
    stop: Callable[[], bool] = lambda: False,
    tick: Tick = lambda round, share: None,
    task: Task | None = None,
    patience: float = 0.0,
) -> Iterator[Record]:
    """Run the config and yield its records, the one of round 0 first; the last one has a `status`.

    With a folder, records and checkpoints are kept there; with `resume`, the run continues from the newest
    checkpoint and first yields the records made before it. A run that ends early (`stop` is true after a
    round, an exception, a closed generator) saves its state first. `tick` is called after every round. Waits up to
    `patience` seconds for another process to leave the folder.
    """
    with Loop(config, folder, resume, make_backend, task, patience) as loop:
        yield from loop.records(stop, tick)


class Loop:
    """The rounds of one run, one `step` each, with its records, checkpoints and checks.

    It holds the folder and the backend until it is closed; closing saves what is not saved yet.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder | None = None,
        resume: bool = False,
        make_backend: MakeBackend = in_process,
        task: Task | None = None,
        patience: float = 0.0,
    ) -> None:
        self.config, self.folder, self.limits = config, folder, Limits.of(config)
        self.status: str | None = None
        self.closed = False
        with ExitStack() as stack, ONE_THREAD:
            if folder is not None:
                stack.enter_context(folder.claimed(config.resolved(), resume, patience))
            self.task = build_task(config) if task is None else task
            backend = make_backend(self.task)
            stack.callback(backend.close)
            self.federation = build_federation(config, self.task, backend)
            self.clock, self.evaluation = Clock(backend), Evaluation(config, self.task, backend)
            x, y = self.task.problem.init(stream(config.seed, "init"))
            state = config.algorithm.init(x, y, self.task.data.num_clients)
            self.place = RunPosition(0, state, Meter(), dict.fromkeys(self.evaluation.averaged(state), 0.0))
            self.saved = 0  # the round that the newest checkpoint is of
            self.known = self._restore(folder) if folder is not None and resume else []
            self.chain = RecordChain.of(self.known)
            stack.enter_context(at_stake())
            self.resources = stack.pop_all()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Save the state after the last whole round; give up the folder and the backend."""
        self.closed = True
        with self.resources:
            if self.status != "diverged" and self.place.round > self.saved:
                try:
                    self._save()
                except KeyboardInterrupt:  # the first one; further ones are ignored, or end the process
                    self._save()
                    raise

    @property
    def round(self) -> int:
        """How many rounds there have been."""
        return self.place.round

    @property
    def state(self) -> State:
        return self.place.state

    @property
    def meter(self) -> Meter:
        """What the rounds have cost."""
        return self.place.meter

    @property
    def done(self) -> bool:
        return self.status is not None

    @property
    def share(self) -> float:
        """How much of the run is done, between 0 and 1."""
        return self.limits.share(self._costs())

    def records(
        self, stop: Callable[[], bool] = lambda: False, tick: Tick = lambda round, share: None
    ) -> Iterator[Record]:
        """All records, those made before a resume first, until the run or `stop` ends it."""
        yield from self.opening()
        while not self.done and not stop():
            record = self.step()
            tick(self.round, self.share)
            if record is not None:
                yield record

    def opening(self) -> list[Record]:
        """The records up to the round where the run starts or continues."""
        with ONE_THREAD, self.clock:
            if (limit := self.limits.ended_by(self._costs())) is not None:
                return [*self.known, self._finish(limit)]
            made = self.known and self.known[-1]["round"] == self.round
            return [*self.known, *([self._record()] if self._due(self.round) and not made else [])]

    def step(self) -> Record | None:
        """Do one round; returns its record if it has one: every so many rounds, and at the end."""
        if self.done:
            return None
        with ONE_THREAD, self.clock:
            if self.place.settled:  # else the step before this one was interrupted after its round
                self.place = self._next()
            record = self._settle()
            self.place = self.place._replace(settled=True)
            return record

    def _settle(self) -> Record | None:
        """What follows a round: the end, or the record and the checkpoint that are due."""
        reason = diverged(self.state, self.config.record.explosion)
        if reason is not None:
            return self._end("diverged", reason=reason)
        if (limit := self.limits.ended_by(self._costs())) is not None:
            return self._finish(limit)
        # The record before the checkpoint: a crash between the two loses neither.
        record = self._record() if self._due(self.round) else None
        if self.round % self.config.record.checkpoint_every == 0:
            self._save()
        return record

    def _next(self) -> RunPosition:
        """The place after one more round."""
        k, before, algorithm = self.round, self.state, self.config.algorithm
        self.federation.meter = replace(self.meter)  # without what a round that was interrupted has cost
        state = algorithm.round(self.federation.clients(stream(self.config.seed, "round", k), k), before)
        if not isinstance(state, dict) or shapes(state) != shapes(before):
            rule = f"{type(algorithm).__name__}.round must return the tensors that init made"
            raise RunFailed(f"{rule}, {shapes(before)}, but returned {shapes(state)}")
        figures = self.evaluation.averaged(before)
        sums = {name: total + figures[name] for name, total in self.place.sums.items()}
        return RunPosition(k + 1, state, replace(self.federation.meter), sums, before["x"], settled=False)

    def _due(self, round: int) -> bool:
        return round % self.config.record.every == 0

    def _finish(self, limit: str) -> Record:
        return self._end("finished", **({} if limit == "rounds" else {"ended_by": limit}))

    def _end(self, status: str, **more: str) -> Record:
        """Keep the result, and make the last record."""
        if self.folder is not None:
            if status != "diverged":
                self._save()
            self.folder.save_result(self.state)
        digests = {"x_sha256": sha256(self.state["x"]), "y_sha256": sha256(self.state["y"])}
        record = self._record(status=status, backend=self.federation.backend.description, **digests, **more)
        self.status = status  # last, so that an interrupted end is made again
        return record

    def _costs(self) -> Record:
        """What the rounds so far have cost."""
        meter, samples, (wall, cpu) = self.meter, self.task.data.num_samples, self.clock.read()
        epochs = meter.samples / samples if samples else None
        seconds = {"wall_seconds": wall, "cpu_seconds": cpu}
        return {"round": self.round, **meter.state(), "data_epochs": epochs, **seconds}

    def _record(self, **ending: str) -> Record:
        costs = self._costs()
        counts = ("round", "communications", "samples", "data_epochs", "floats_up", "floats_down", "dropped")
        figures = self.evaluation.figures(self.state, self.round) | running_means(self.place.sums, self.round)
        every = self.config.record.exact_every
        if every is not None and (self.round % every == 0 or ending):
            figures |= self.evaluation.exact(self.state, self.place.before)
        record = {
            **{name: costs[name] for name in counts},
            **jsonable({"waited": costs["waited"], **figures}),
            **{name: round(value, 3) for name, value in self._costs().items() if name.endswith("_seconds")},
            **ending,
        }
        if "status" in record:
            record = sealed(record, self.chain)
        if self.folder is not None:
            self.folder.append(record)
        self.chain.add(record)
        return record

    def _save(self) -> None:
        if self.folder is not None:
            chain = (self.chain.count, self.chain.digest)
            checkpoint = Checkpoint(self.state, self._costs(), self.place.sums, self.config.resolved(), *chain)
            self.folder.save(checkpoint, self.config.record.checkpoints_kept)
            self.saved = self.round

    def _restore(self, folder: RunFolder) -> list[Record]:
        """Go back to the newest checkpoint; returns the records made up to it, but for an ending."""
        checkpoint = folder.latest(tell=True)
        if checkpoint is None:
            return folder.rewind(None)
        there, here = [(shapes(each.state), each.sums.keys()) for each in (checkpoint, self.place)]
        if there != here:  # for example, because its data have changed
            raise FolderDamaged(
                f"the checkpoint of round {checkpoint.round} in {folder.path} has other shapes or figures than the run "
                "has now; put back its former data, or remove the folder to run it again"
            )
        costs = checkpoint.costs
        meter = Meter(**{field.name: costs[field.name] for field in fields(Meter)})
        self.place = RunPosition(checkpoint.round, checkpoint.state, meter, checkpoint.sums)
        self.saved, self.clock.total = checkpoint.round, Seconds(costs["wall_seconds"], costs["cpu_seconds"])
        return folder.rewind(checkpoint)
