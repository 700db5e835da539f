"""Ray for as long as it is needed."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from fedmbo_ray.core.compat import ray_reads_authentication
from fedmbo_ray.core.interruptions import deferred
from fedmbo_ray.core.process_state import (
    environment_kept,
    handlers_without,
    held_back,
    libraries_silenced,
    log_levels_kept,
)


@contextmanager
def ray_session() -> Iterator[None]:
    """In this context, Ray may be started. At the end it is stopped, if it did not run before.

    Ray puts variables into the environment, handles SIGTERM and prints errors its own way; Ray Tune handles SIGUSR1.
    All this is undone at the end.
    """
    with (
        ExitStack() as last,
        environment_kept("RAY_", "PYTHONBREAKPOINT"),
        handlers_without("ray"),
        libraries_silenced(),
    ):
        import ray  # takes seconds

        was_there = ray.is_initialized()
        if not was_there:
            last.callback(ray_reads_authentication)  # of the environment that was put back
        with log_levels_kept("ray", "ray.tune"):
            try:
                yield
            finally:
                if not was_there:
                    with deferred(), held_back(signal.SIGTERM):  # Ray's shutdown resets its handler
                        ray.shutdown()
