"""The driver actor: runs the rounds of one config on client actors and streams its records.

If its process dies, Ray restarts it, and it continues from its newest checkpoint.
"""

import math
import os
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from signal import SIGTERM
from typing import Any

import ray
import torch
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError

from fedmbo_ray.backends.ray.health import RayHealth, ray_watched, results_of
from fedmbo_ray.backends.ray.placement import Resources, cluster_nodes, require_room
from fedmbo_ray.backends.ray.pool import RayActors
from fedmbo_ray.backends.ray.waiting import Say, on_stderr
from fedmbo_ray.config.schema import ClientsConfig, Fields, RunConfig
from fedmbo_ray.core.compat import (
    ray_may_be_on_loopback,
    ray_prints_nothing,
    ray_starts_no_helpers,
    ray_starts_without_handler,
)
from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError, FolderDamaged, FolderInUse, RunFailed, RunStopped
from fedmbo_ray.core.interruptions import at_stake, deferred
from fedmbo_ray.core.memory import is_shortage, out_of_memory
from fedmbo_ray.core.process_state import held_back
from fedmbo_ray.core.sampling import sampled
from fedmbo_ray.problems.base import Task
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.local_ray import local_options
from fedmbo_ray.runs.loop import PATIENCE, Tick, run
from fedmbo_ray.runs.profile import Profile
from fedmbo_ray.runs.ray_session import ray_session
from fedmbo_ray.runs.records import Record

RESTARTS = 5
TO_SAVE = 10.0  # seconds that a driver has to save its state when Ray has died
ACTORS_PER_CORE = 64  # of a cluster that is started here
STARTED: list[str] = []  # the addresses of clusters that were started here, the newest last


class Driver:
    """Runs the rounds in its own thread as soon as it is created, so that listeners may come and go."""

    def __init__(self, fields: Fields, out: str, resume: bool, profile: bool = False) -> None:
        self.config = construct(RunConfig, fields)
        self.folder = RunFolder(Path(out))
        restarted = ray.get_runtime_context().was_current_actor_reconstructed
        self.resume, self.patience = resume or restarted, PATIENCE if restarted else 0.0
        self.news: list[Record | str] = []  # records, and lines for the user
        self.begun = False
        self.error: Exception | None = None
        self.done = self.stopping = False
        self.round, self.share, self.profile = 0, 0.0, profile
        self.told = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            with sampled(self.profile) as stacks:
                for record in self._records():
                    self._tell(record)
            if self.profile:
                Profile({"driver": stacks, **self.backend.profiles}, self.round).write(self.folder.profile_file)
        except (ConfigError, FolderInUse, FolderDamaged, RunFailed, OSError) as error:
            self.error = error
        except Exception as error:  # it is raised again in the process that listens
            shortage = is_shortage(error)
            self.error = RunStopped(out_of_memory(error)) if shortage else RunFailed(traceback.format_exc())
        with self.told:
            self.done = True
            self.told.notify_all()

    def _records(self) -> Iterator[Record]:
        how = (self._backend, lambda: self.stopping, self._tick)
        return run(self.config, self.folder, self.resume, *how, patience=self.patience)

    def _tell(self, news: Record | str) -> None:
        with self.told:
            self.news.append(news)
            self.told.notify_all()

    def _backend(self, task: Task) -> RayActors:
        self.backend = actors(self.config.clients, task, self.profile, self._tell)
        self.begun = True
        return self.backend

    def _tick(self, round: int, share: float) -> None:
        self.round, self.share = round, share

    def listen(self, since: int) -> tuple[list[Record | str], tuple[int, float], bool, Exception | None]:
        """News from number `since` on, after a second at most; round and share; whether the run is over; its error."""
        with self.told:
            self.told.wait_for(lambda: self.done or len(self.news) > since, timeout=1)
            return self.news[since:], (self.round, self.share), self.done, self.error

    def stop(self) -> None:
        """End the run after the current round and save its state; waits until this is done, if the run has begun."""
        self.stopping = True
        with self.told:
            self.told.wait_for(lambda: self.done or not self.begun)


def actors(clients: ClientsConfig, task: Task, profile: bool = False, say: Say = on_stderr) -> RayActors:
    """The client actors that a config asks for."""
    each = (clients.cpus_per_actor, clients.gpus_per_actor)
    return RayActors(task, clients.actors, *each, profile, say=say)


def run_on_ray(
    config: RunConfig,
    folder: RunFolder,
    resume: bool = False,
    tick: Tick = lambda round, share: None,
    profile: bool = False,
    say: Say = on_stderr,
) -> Iterator[Record]:
    """`loop.run` in a driver actor, with the same records, even if the driver's process dies."""
    with room_on_ray(config.clients) as health:
        remote = ray.remote(Driver).options(num_cpus=0, max_restarts=RESTARTS, max_concurrency=4)
        driver = remote.remote(config.resolved(), str(folder.path.absolute()), resume, profile)
        last = -1
        try:
            for news in _listen(driver, tick, health):
                if isinstance(news, str):
                    say(news)
                elif news["round"] > last or "status" in news:
                    last = news["round"]
                    yield news
        except (GeneratorExit, KeyboardInterrupt):
            with suppress(RayActorError):  # it is being restarted; its newest checkpoint is in the folder
                results_of([driver.stop.remote()], lambda missing: health.require())
            raise
        except RunStopped:  # the driver may be alive and can then save its state
            ray.wait([driver.stop.remote()], timeout=TO_SAVE)
            raise
        finally:
            ray.kill(driver)


@contextmanager
def room_on_ray(clients: ClientsConfig) -> Iterator[RayHealth]:
    """Ray with room for a run's actors. If it was not running before, it is stopped at the end."""
    cores = clients.actors * clients.cpus_per_actor
    with at_stake(), ray_session():
        if not in_cluster():
            require_few(clients)
        if not ray.is_initialized():  # known before it takes seconds to start
            require_room(clients.actors, clients.cpus_per_actor, clients.gpus_per_actor, nodes_at_hand(cores))
        start_ray(cores)
        with ray_watched() as health:
            yield health


def require_few(clients: ClientsConfig) -> None:
    """Raise a ConfigError for more processes than a machine can start and still be used."""
    most = ACTORS_PER_CORE * (os.cpu_count() or 1)
    for asked, key in ((clients.actors, "actors"), (clients.actors * clients.cpus_per_actor, "cpus_per_actor")):
        if asked > most:
            raise ConfigError(
                f"actors and the cores that they ask for must be {most} at most on this machine ({ACTORS_PER_CORE} per "
                f"core), but got {asked:g}; use fewer, each computes for many clients, or a cluster ($RAY_ADDRESS)",
                "clients",
                key,
            )


def _listen(driver: Any, tick: Tick, health: RayHealth) -> Iterator[Record | str]:
    """The driver's records and lines; after a restart, the driver sends all of them again, from the first."""
    since, done = 0, False
    while not done:
        health.require()
        try:
            (heard,) = results_of([driver.listen.remote(since)], lambda missing: health.require())
        except ActorUnavailableError:  # it is being restarted
            since = 0
            time.sleep(0.5)
            continue
        except ActorDiedError as death:
            health.look()  # if its node has died, it was not restarted
            said = " ".join(str(death).split())
            raise RunStopped(f"the driver died {RESTARTS + 1} times; the last time: {said}") from None
        news, progress, done, error = heard
        since += len(news)
        tick(*progress)
        yield from news
        if error is not None:
            raise error


def in_cluster() -> bool:
    """Whether this process uses, or will use, a Ray that it did not start; other machines may be part of it."""
    if ray.is_initialized():
        return not STARTED or STARTED[-1] != ray.get_runtime_context().gcs_address
    return bool(os.environ.get("RAY_ADDRESS"))


def own_cores(cpus: float) -> int:
    """The cores of a cluster that is started here: those of this machine, or more if asked."""
    return max(math.ceil(cpus), os.cpu_count() or 1)


def nodes_at_hand(cpus: float = 0.0) -> list[Resources]:
    """The nodes of the cluster in use or named by $RAY_ADDRESS; else those of one here, without starting it."""
    if ray.is_initialized() or in_cluster():
        start_ray()
        return cluster_nodes()
    return [{"CPU": float(own_cores(cpus)), "GPU": float(torch.cuda.device_count())}]


def start_ray(cpus: float = 0.0) -> None:
    """Join the cluster that $RAY_ADDRESS names, or start one here, with this machine's cores or more if asked."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, object] = {"logging_level": "ERROR", "log_to_driver": False}
    named = in_cluster()  # another Ray on this machine is not used unless it was named
    try:
        with ExitStack() as stack:
            if not named:
                options |= {"address": "local", "num_cpus": own_cores(cpus), **local_options()}
                stack.enter_context(ray_may_be_on_loopback())
                stack.enter_context(ray_starts_no_helpers())
            stack.enter_context(ray_prints_nothing())
            # At SIGTERM, Ray's C++ code would print a dump while Ray starts. Threads that were there before may still
            # receive it; Ray's own Python handler, which the main thread would then call, is therefore left out.
            for context in (deferred(), ray_starts_without_handler(), held_back(SIGTERM)):
                stack.enter_context(context)
            ray.init(**options)
    except Exception as error:  # Ray has no special exception for a machine that is too busy or has no room
        where = os.environ["RAY_ADDRESS"] if named else "this machine"
        raise RunFailed(f"Ray could not be started or reached on {where}: {' '.join(str(error).split())}") from error
    if not named:
        STARTED.append(ray.get_runtime_context().gcs_address)
