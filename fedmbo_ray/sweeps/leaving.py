"""How an interrupted sweep ends: the trials that run save their state after the current round."""

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ray.tune import Callback

from fedmbo_ray.sweeps.folder import SweepFolder

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

PATIENCE = 20.0  # seconds for a round and its checkpoint


class Leaving(Callback):
    """Once `asked`, it tells the trials to stop, waits for those that run, and raises KeyboardInterrupt.

    A trial that starts in the meantime finds the request to stop, and does nothing.
    """

    def __init__(self, folder: SweepFolder, asked: Callable[[], bool]) -> None:
        self.folder, self.asked, self.deadline = folder, asked, math.inf
        self.running: list[Trial] = []

    def __reduce__(self) -> tuple[type[Callback], tuple[()]]:
        return Callback, ()  # Tune pickles callbacks for its own restoration, which is not used here

    def on_step_end(self, iteration: int, trials: "list[Trial]", **info: object) -> None:
        if not self.asked():
            return
        if self.deadline == math.inf:
            self.folder.stop_file.touch()
            self.running = [trial for trial in trials if trial.status == "RUNNING"]
            self.deadline = time.monotonic() + PATIENCE
        if all(trial.is_finished() for trial in self.running) or time.monotonic() > self.deadline:
            raise KeyboardInterrupt
