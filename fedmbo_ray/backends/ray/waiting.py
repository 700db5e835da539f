"""Tells the user when client actors wait for cores or GPUs that others hold: Ray itself says nothing."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress

import ray

from fedmbo_ray.backends.ray.health import RayHealth
from fedmbo_ray.backends.ray.placement import Resources
from fedmbo_ray.core.compat import requests_waiting

FIRST, AGAIN = 5.0, 60.0  # seconds until the first line, and between lines
Say = Callable[[str], None]


def on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Patience:
    """Waits for client actors; says how many of them wait for room, after a few seconds and then every minute."""

    def __init__(self, cpus: float, gpus: float, say: Say) -> None:
        self.asked: Resources = {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount}
        self.say, self.health = say, RayHealth()
        self.begin()

    def begin(self) -> None:
        """To be called when an actor is created: the user hears of it if it still waits after a few seconds."""
        self.next = time.monotonic() + FIRST

    def look(self, missing: int) -> None:
        """To be called when `missing` actors have not answered yet; raises RunStopped if Ray is dead.

        Actors that have room but take long to start do not count as waiting.
        """
        self.health.require()
        if not missing or time.monotonic() < self.next:
            return
        self.next = time.monotonic() + AGAIN
        with suppress(ray.exceptions.RayError):  # the cluster's head is busy: the line comes later
            count = min(missing, sum(count for asked, count in requests_waiting() if asked == self.asked))
            if count:
                self.say(self._line(count, ray.available_resources()))

    def _line(self, count: int, free: Resources) -> str:
        asked = " and ".join(f"{count * amount:g} {name}s" for name, amount in self.asked.items())
        left = " and ".join(f"{free.get(name, 0.0):g}" for name in self.asked)
        return f"waiting for {count} client actor(s): they ask for {asked}, but {left} are free (others hold the rest)"
