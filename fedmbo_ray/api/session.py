"""A loop with the backend of its config; Ray, if needed, runs as long as the loop."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from fedmbo_ray.config.schema import ClientsConfig, RunConfig
from fedmbo_ray.core.errors import FedmboError, RunFailed
from fedmbo_ray.problems.base import Task
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.loop import Loop, MakeBackend, in_process
from fedmbo_ray.runs.ray_session import ray_session


@contextmanager
def session(config: RunConfig, folder: RunFolder | None, resume: bool, task: Task) -> Iterator[Loop]:
    """The loop of a run in this process; if Ray is started for its client actors, it stops with the loop."""
    with ExitStack() as stack:
        make_backend: MakeBackend = in_process
        if config.clients.backend == "ray":
            stack.enter_context(ray_session())  # before Ray is imported, since the import also changes the process
            stack.enter_context(_room(config.clients))
            make_backend = _actors(config.clients)
        yield stack.enter_context(Loop(config, folder, resume, make_backend, task))


@contextmanager
def failures_told() -> Iterator[None]:
    """In this context, an exception from a problem or a method becomes a RunFailed, whose cause it is."""
    try:
        yield
    except (FedmboError, OSError, MemoryError):
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        raise RunFailed(f"a computation raised {type(error).__name__}{f': {said}' if said else ''}") from error


def _room(clients: ClientsConfig) -> AbstractContextManager[object]:
    from fedmbo_ray.runs.driver import room_on_ray  # Ray takes seconds to import

    return room_on_ray(clients)


def _actors(clients: ClientsConfig) -> MakeBackend:
    from fedmbo_ray.runs.driver import actors

    return lambda task: actors(clients, task)
