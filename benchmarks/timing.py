"""Arms take turns, and medians are compared: whatever else the machine does hits all alike."""

import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import psutil

MARK = "FEDMBO_BENCH"
os.environ[MARK] = str(os.getpid())


class Arm(Protocol):
    """One way to do a task."""

    def run(self, rounds: int) -> None:
        """Go on by that many rounds."""
        ...

    def figures(self) -> dict[str, float]:
        """What the rounds so far have led to: evidence that the arm does the task."""
        ...

    def close(self) -> None: ...


@dataclass
class Result:
    """Seconds per round in each turn, rounds per turn, and the arm's figures at the end."""

    seconds: list[float] = field(default_factory=list)
    rounds: int = 0
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def interleave(
    arms: dict[str, Arm], repetitions: int, seconds: float, tell: Callable[[str], None] = lambda text: None
) -> dict[str, Result]:
    """Every repetition gives each arm a turn of about `seconds`; all have done a first round before."""
    results = {name: Result() for name in arms}
    turns = {name: _turn(arm, seconds) for name, arm in arms.items()}
    for repetition in range(repetitions):
        tell(f"repetition {repetition + 1} of {repetitions}")
        for name, arm in arms.items():
            start = time.perf_counter()
            arm.run(turns[name])
            results[name].seconds.append((time.perf_counter() - start) / turns[name])
    for name, arm in arms.items():
        results[name].rounds = turns[name]
        results[name].figures = arm.figures()
    return results


def _turn(arm: Arm, seconds: float) -> int:
    """How many rounds take that long; the first one, which warms up, does not count."""
    arm.run(1)
    start = time.perf_counter()
    arm.run(2)
    return max(1, round(2 * seconds / (time.perf_counter() - start)))


class Load:
    """What processes other than ours take of the machine's cores, while it is measured."""

    def __init__(self) -> None:
        self.start, self.busy, self.own = time.perf_counter(), _busy(), _own()

    def foreign(self) -> dict[str, float]:
        """Cores used by others, and cores that the hypervisor gave to somebody else."""
        elapsed = time.perf_counter() - self.start
        busy, stolen = (now - then for now, then in zip(_busy(), self.busy, strict=True))
        own = sum(seconds - self.own.get(process, 0.0) for process, seconds in _own().items())
        return {
            "foreign_cores": round(max(0.0, busy - own) / elapsed, 3),
            "stolen_cores": round(stolen / elapsed, 3),
        }


def _busy() -> tuple[float, float]:
    times = psutil.cpu_times()
    return times.user + times.nice + times.system, getattr(times, "steal", 0.0)


def _own() -> dict[int, float]:
    """Seconds of this process and of all that it has started, at any remove."""
    return {process.pid: _seconds(process) for process in family()}


def family() -> list[psutil.Process]:
    """Told by a variable that they inherit: a framework's daemons cut the line of descent."""
    own = str(os.getpid())
    return [process for process in psutil.process_iter() if process.pid == os.getpid() or is_marked(process, own)]


def is_marked(process: psutil.Process, mark: str) -> bool:
    """Whether a process was started with this mark in its environment."""
    try:
        return process.environ().get(MARK) == mark
    except psutil.Error:  # gone, or another user's
        return False


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system + times.children_user + times.children_system


def megabytes(pids: Iterable[int]) -> float:
    """What these processes hold for themselves, shared memory not counted."""
    total = 0
    for pid in pids:
        info: Any = psutil.Process(pid).memory_info()
        total += info.rss - getattr(info, "shared", 0)
    return total / 2**20


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    with open("/proc/cpuinfo") as lines:
        models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {"cores": os.cpu_count(), "cpu": models[0] if models else "unknown"}
