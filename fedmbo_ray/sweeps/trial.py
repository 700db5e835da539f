"""What one trial of a sweep does: the runs of its point, one for each seed, reported to Ray Tune record by record."""

import math
import platform
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NotRequired, TypedDict

import psutil
import ray
from ray import tune
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fedmbo_ray.backends.lockstep import SharedBackends, advance
from fedmbo_ray.backends.ray.pool import RayActors
from fedmbo_ray.config.schema import Fields, RunConfig
from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.removal import remove_folder
from fedmbo_ray.problems.base import Task
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.limits import Limits
from fedmbo_ray.runs.loop import PATIENCE, MakeBackend, run
from fedmbo_ray.runs.records import Record
from fedmbo_ray.sweeps.folder import TrialFolder, mean, name_of_point, numbered
from fedmbo_ray.sweeps.proof import require_same_run
from fedmbo_ray.sweeps.remote_folder import Home
from fedmbo_ray.sweeps.rungs import has_come_to
from fedmbo_ray.sweeps.schema import SweepPlan, make_sweep
from fedmbo_ray.sweeps.space import SweepPoint

PROCESS = psutil.Process()


Step = Callable[[list[Iterator[Record]]], list[Record | None]]  # the next record of each run, None at its end


class TrialConfig(TypedDict):
    """What Ray Tune has chosen for a trial."""

    point: SweepPoint
    before: NotRequired[int]  # how often the point was proposed before
    number: NotRequired[int]  # of the trial, if Tune's own numbers differ
    until: NotRequired[int | None]  # the round where the trial waits for others; None: it runs to its end


def run_trial(config: TrialConfig, plain: Fields, home: Home, numbers: list[int] | None) -> None:
    """Called by Ray Tune in a separate process, with the point that it has chosen for this trial."""
    sweep, point = make_sweep(plain), config["point"]
    name = trial_name(tune.get_context().get_trial_id(), config, numbers)
    if sweep.tune.scheduler.copies and not home.seen():
        raise RunFailed(
            "with a scheduler whose trials copy each other, the sweep's folder must be on storage that all nodes see, "
            f"but {home.path} is not"
        )
    stop = home.stopping()
    if stop():
        return
    with home.trial(name, sweep.tune.seeds) as (folder, keep):
        run_in(folder, sweep, point, keep, config.get("until"), stop)


def run_in(
    folder: TrialFolder,
    sweep: SweepPlan,
    point: SweepPoint,
    keep: Callable[[], None],
    until: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run what is left of a trial in its folder, up to round `until` if given, where it may have to wait.

    `keep` is called whenever the folder has something new. If `stop` is true after a round, the state is saved and the
    trial ends.
    """
    limits = Limits.of(sweep.config(point))
    if folder.point == point and folder.done:
        for record in folder.records():  # asha compares other trials with these
            tune.report(report_of(sweep, limits, [record]))
        return
    folder.begin(point)
    keep()
    copies = sweep.tune.scheduler.copies
    if copies and (given := tune.get_checkpoint()) is not None:
        adopt(sweep, folder, given)
    saved = min((run.saved_round() for run in folder.runs), default=-1)
    with ExitStack() as stack:
        for records in together(sweep, point, folder, stack, stop):
            known = records[0]["round"] <= saved and "status" not in records[0]
            if known and copies:  # its number of rounds must not decrease
                continue
            if not known or saved == 0:
                folder.note_system({"round": records[0]["round"], "node": node(), **system_figures()})
                keep()
            with tempfile.TemporaryDirectory() as copy:
                figures = report_of(sweep, limits, records)
                tune.report(figures, checkpoint=checkpoint(folder, copy) if copies else None)
            if until is not None and all(has_come_to(until, record) for record in records):
                break
    keep()  # the checkpoints of runs that were closed before their end


def node() -> str:
    """Where this process runs, in words that distinguish several nodes on one machine."""
    return f"{platform.node()}/{ray.get_runtime_context().get_node_id()[:6]}"


def system_figures() -> dict[str, float]:
    """The memory of this process, and how busy it and its machine have been since the last call."""
    memory = psutil.virtual_memory()
    return {
        "process_memory_megabytes": PROCESS.memory_info().rss / 2**20,
        "process_cpu_percentage": PROCESS.cpu_percent(),
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_percentage": memory.percent,
    }


def trial_name(trial_id: str, config: TrialConfig, numbers: list[int] | None) -> str:
    """The name of a trial's folder: its number among the points or, where they have none, a digest of its point.

    Tune calls its trials <some letters>_00000, …_00001 and so on; `numbers` are those of our points.
    """
    if "number" in config:
        return numbered(config["number"])
    if numbers is not None:
        return numbered(numbers[int(trial_id.rpartition("_")[2])])
    digest = name_of_point(config["point"])
    return f"{digest}-{config['before']}" if config["before"] else digest


def checkpoint(folder: TrialFolder, directory: str) -> tune.Checkpoint:
    """What another trial needs to continue from this one's state; Tune makes its own copy."""
    shutil.copytree(folder.path, directory, dirs_exist_ok=True)
    return tune.Checkpoint.from_directory(directory)


def report_of(sweep: SweepPlan, limits: Limits, records: list[Record]) -> dict[str, float]:
    """What Ray Tune needs to know; a trial without the metric is the worst of all."""
    worst = math.inf if sweep.tune.mode == "min" else -math.inf
    score = mean(records).get(sweep.tune.metric, worst)
    share = min(limits.share(record) for record in records)
    return {"round": min(record["round"] for record in records), "share": share, "score": score}


def together(
    sweep: SweepPlan, point: SweepPoint, folder: TrialFolder, stack: ExitStack, stop: Callable[[], bool]
) -> Iterator[list[Record]]:
    """The records of all seeds, side by side, until `stop` is true; a run that has ended keeps its last record."""
    configs, shared = [sweep.config(point, seed) for seed in range(sweep.tune.seeds)], SharedBackends()
    made = [
        records_of(config, folder.run(seed), pool_of(config, seed) if pooled(config) else shared, stop)
        for seed, config in enumerate(configs)
    ]
    for each in made:
        stack.callback(each.close)
    runs: list[Iterator[Record]] = [*made]
    step: Step = at_once(len(runs), stack) if pooled(configs[0]) else advance
    lasts = [record for record in step(runs) if record is not None]  # every run has a first
    while True:
        yield lasts
        following = step(runs)
        if stop() or all(record is None for record in following):
            return
        lasts = [last if record is None else record for last, record in zip(lasts, following, strict=True)]


def records_of(
    config: RunConfig, folder: RunFolder, make_backend: MakeBackend, stop: Callable[[], bool] = lambda: False
) -> Generator[Record]:
    """The records of a run, continued from its folder; nothing of a run that has ended is computed again."""
    require_same_run(folder, config)
    known = folder.proven_records()
    if known and "status" in known[-1]:
        yield from known
        return
    yield from run(config, folder, True, make_backend, stop, patience=PATIENCE)


def pooled(config: RunConfig) -> bool:
    """Whether every seed has its own actors, and computes at the same time as the others."""
    return config.clients.backend == "ray"


def at_once(count: int, stack: ExitStack) -> Step:
    """Like `advance`, for runs that compute in other processes."""
    workers = stack.enter_context(ThreadPoolExecutor(count))
    return lambda runs: list(workers.map(lambda run: next(run, None), runs))


def pool_of(config: RunConfig, seed: int) -> MakeBackend:
    """A pool of actors in the room that the trial has reserved for this seed."""
    return lambda task: pool(config, task, seed)


def pool(config: RunConfig, task: Task, seed: int) -> RayActors:
    clients, group = config.clients, ray.util.get_current_placement_group()
    first = 1 + seed * clients.actors  # the trial's own process is in bundle 0
    places = [PlacementGroupSchedulingStrategy(group, first + number) for number in range(clients.actors)]
    each = (clients.cpus_per_actor, clients.gpus_per_actor)
    return RayActors(task, clients.actors, *each, places=places)


def adopt(sweep: SweepPlan, folder: TrialFolder, given: tune.Checkpoint) -> None:
    """Go on from where another trial's runs are, at this trial's own point."""
    with given.as_directory() as directory:
        for seed in range(sweep.tune.seeds):
            own = folder.run(seed)
            new = RunFolder(folder.path / f".{own.path.name}.new")  # put in place when it is whole
            shutil.rmtree(new.path, ignore_errors=True)
            shutil.copytree(Path(directory) / own.path.name, new.path)
            new.adopt(sweep.config(folder.point, seed).resolved())
            remove_folder(own.path)
            new.path.replace(own.path)
