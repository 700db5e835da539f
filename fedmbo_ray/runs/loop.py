"""The loop over rounds: the only one there is, for commands, actors, benchmarks and tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import fields, replace
from types import TracebackType

from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.errors import FolderDamaged
from fedmbo_ray.core.interruptions import at_stake, deferred
from fedmbo_ray.core.rng import stream
from fedmbo_ray.federation.execution import Backend, Seconds
from fedmbo_ray.federation.meter import Meter
from fedmbo_ray.problems.base import Task
from fedmbo_ray.runs.build import build_federation, build_task
from fedmbo_ray.runs.checkpoint import Checkpoint, RecordChain, sealed
from fedmbo_ray.runs.clock import ONE_THREAD, Clock
from fedmbo_ray.runs.evaluation import Evaluation, jsonable
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.limits import Limits
from fedmbo_ray.runs.records import Record
from fedmbo_ray.runs.state import RunPosition, State, diverged, require_same_shapes, sha256, shapes

MakeBackend = Callable[[Task], Backend]
PATIENCE = 60.0  # seconds to wait for a folder that is still held by a process that was replaced (dead or cut off)
Tick = Callable[[int, float], None]  # called after every round with the number of rounds and the share of the run
in_process: MakeBackend = InProcess


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
    round, an exception, a closed generator) saves its state first. Another process has `patience` seconds to leave.
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
        self.config, self.folder, self.limits, self.closed = config, folder, Limits.of(config), False
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
            self.made = self._restore(folder) if folder is not None and resume else []  # records to be handed out
            self.last = self.made[-1] if self.made else None
            self.chain = RecordChain.of(self.made)
            stack.enter_context(at_stake())
            self.resources = stack.pop_all()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Save the state after the last whole round, unless it has diverged; give up the folder and the backend."""
        self.closed = True
        with self.resources:
            if self.place.round > self.saved and diverged(self.state, self.config.record.explosion) is None:
                with deferred():
                    self._save()

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
    def status(self) -> str | None:
        """How the run has ended, None if it has not."""
        return None if self.last is None else self.last.get("status")

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
        self.opening()
        while True:
            new, self.made = self.made, []
            yield from new
            if self.done or stop():
                return
            self.step()
            tick(self.round, self.share)

    def opening(self) -> list[Record]:
        """The records up to where the run starts or continues; those of later steps are added to this list."""
        with ONE_THREAD, self.clock:
            if (limit := self.limits.ended_by(self._costs())) is not None:
                self._finish(limit)
            elif self._due():
                self._record()
            return self.made

    def step(self) -> Record | None:
        """Do one round; returns its record if it has one: every so many rounds, and at the end."""
        if self.done:
            return None
        with ONE_THREAD, self.clock:
            if self.place.settled:  # else the step before this one was interrupted after its round
                self.place = self._next()
            self._settle()
            self.place = self.place._replace(settled=True)
            return self.last if self._recorded() else None

    def _settle(self) -> None:
        """What follows a round: the end, or the record and the checkpoint that are due."""
        if (reason := diverged(self.state, self.config.record.explosion)) is not None:
            self._end("diverged", reason=reason)
        elif (limit := self.limits.ended_by(self._costs())) is not None:
            self._finish(limit)
        else:
            if self._due():
                self._record()
            if self.round % self.config.record.checkpoint_every == 0:  # after the record: a crash loses neither
                self._save()

    def _next(self) -> RunPosition:
        """The place after one more round."""
        k, before, algorithm = self.round, self.state, self.config.algorithm
        self.federation.meter = replace(self.meter)  # without what a round that was interrupted has cost
        state = algorithm.round(self.federation.clients(stream(self.config.seed, "round", k), k), before)
        require_same_shapes(state, before, type(algorithm).__name__)
        figures = self.evaluation.averaged(before)
        sums = {name: total + figures[name] for name, total in self.place.sums.items()}
        last_x = None if self.config.record.exact_every is None else before["x"]
        return RunPosition(k + 1, state, replace(self.federation.meter), sums, last_x, settled=False)

    def _recorded(self) -> bool:
        """Whether this round's record is made."""
        return self.last is not None and self.last["round"] == self.round

    def _due(self) -> bool:
        return self.round % self.config.record.every == 0 and not self._recorded()

    def _finish(self, limit: str) -> None:
        self._end("finished", **({} if limit == "rounds" else {"ended_by": limit}))

    def _end(self, status: str, **more: str) -> None:
        """Keep the result, and make the last record."""
        if self.folder is not None:
            if status != "diverged":
                self._save()
            self.folder.save_result(self.state)
        digests = {"x_sha256": sha256(self.state["x"]), "y_sha256": sha256(self.state["y"])}
        self._record(status=status, backend=self.federation.backend.description, **digests, **more)

    def _costs(self) -> Record:
        """What the rounds so far have cost."""
        meter, samples, (wall, cpu) = self.meter, self.task.data.num_samples, self.clock.read()
        epochs = meter.samples / samples if samples else None
        seconds = {"wall_seconds": wall, "cpu_seconds": cpu}
        return {"round": self.round, **meter.state(), "data_epochs": epochs, **seconds}

    def _record(self, **ending: str) -> None:
        costs, figures = self._costs(), self.evaluation.of_record(self.place, last=bool(ending))
        counts = ("round", "communications", "samples", "data_epochs", "floats_up", "floats_down", "dropped")
        record = {
            **{name: costs[name] for name in counts},
            **jsonable({"waited": costs["waited"], **figures}),
            **{name: round(value, 3) for name, value in self._costs().items() if name.endswith("_seconds")},
            **ending,
        }
        self._keep(sealed(record, self.chain) if ending else record)

    def _keep(self, record: Record) -> None:
        """Add a record to the run; an interruption finds it everywhere or nowhere."""
        with deferred():
            if self.folder is not None:
                self.folder.append(record)
            self.chain.add(record)
            self.made.append(record)
            self.last = record

    def _save(self) -> None:
        if self.folder is not None:
            about = (self._costs(), self.place.sums, self.config.resolved(), self.chain.count, self.chain.digest)
            checkpoint = Checkpoint(self.state, *about, self.place.before)
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
        self.place = RunPosition(checkpoint.round, checkpoint.state, meter, checkpoint.sums, checkpoint.before)
        self.saved, self.clock.total = checkpoint.round, Seconds(costs["wall_seconds"], costs["cpu_seconds"])
        return folder.rewind(checkpoint)
