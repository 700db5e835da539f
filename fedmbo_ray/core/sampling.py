"""What a thread is doing, looked at every few milliseconds."""

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERVAL = 0.002  # seconds between samples
Stacks = dict[str, float]  # "outermost;…;innermost" -> seconds spent there


class Sampler(threading.Thread):
    """Looks at one thread's stack every few milliseconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.thread, self.done = threading.get_ident(), threading.Event()
        self.seconds: dict[str, float] = defaultdict(float)

    def run(self) -> None:
        last = time.perf_counter()
        while not self.done.wait(INTERVAL):
            frame = sys._current_frames().get(self.thread)
            now = time.perf_counter()
            if frame is not None:
                self.seconds[";".join(_names(frame))] += now - last
            last = now


@contextmanager
def sampled(wanted: bool = True) -> Iterator[Stacks]:
    """The stacks of this thread while the context lasts, filled in at its end."""
    stacks: Stacks = {}
    if not wanted:
        yield stacks
        return
    interval = sys.getswitchinterval()
    sys.setswitchinterval(INTERVAL / 20)  # or it would be seen only where it lets go of the interpreter by itself
    sampler = Sampler()
    sampler.start()
    try:
        yield stacks
    finally:
        sampler.done.set()
        sampler.join()
        sys.setswitchinterval(interval)
        stacks.update(sampler.seconds)


def _names(frame: FrameType | None) -> list[str]:
    """The functions of a stack, outermost first: file:function, files of this package by their path in it."""
    names = []
    while frame is not None:
        file = frame.f_code.co_filename
        package = file.rpartition("/fedmbo_ray/")[2] if "/fedmbo_ray/" in file else "/".join(file.split("/")[-2:])
        names.append(f"{package}:{frame.f_code.co_name}")
        frame = frame.f_back
    return names[::-1]
