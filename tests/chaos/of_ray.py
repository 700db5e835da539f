"""Faults of the processes of Ray that a run started."""

import os
import signal
import subprocess
import time
from pathlib import Path

from kinds import KINDS, kind
from own_mounts import PRIVATE
from suffering import (
    RAY,
    Check,
    Ended,
    Suffering,
    Wrong,
    carried_on,
    right_or_refused,
    said_how_to_go_on,
    says_how_to_go_on,
)


def ray_process_killed(pattern: str, number: signal.Signals, expected: tuple[str, ...]) -> Check:
    def check(s: Suffering) -> str:
        process = s.begin("--json", *RAY)
        s.wait_for_records(process, int(s.rng.integers(2, 8)))
        victims = s.of_kind(pattern)
        if victims:
            victims[int(s.rng.integers(len(victims)))].send_signal(number)
        if number == signal.SIGSTOP:
            time.sleep(2)
            for victim in victims:
                victim.send_signal(signal.SIGCONT)
        found = right_or_refused_with_hint(Ended(*process.finish()), s.out)
        if found not in expected:
            raise Wrong(f"{found}, but {' or '.join(expected)} was expected")
        s.no_process_left()  # without its raylet, a driver is killed while it writes
        carried_on(s)
        return found

    return check


def right_or_refused_with_hint(ended: Ended, out: Path) -> str:
    """Also checks that who is refused is told how to go on."""
    found = right_or_refused(ended, out)
    if found == "refused" and not says_how_to_go_on(ended, out):
        raise Wrong(f"no hint: {ended.err[-500:]}")
    return found


PROCESSES = {
    "ClientActor": ("right",),
    "ray::Driver": ("right",),
    "raylet/raylet": ("right", "refused"),
    "gcs_server": ("right", "refused"),
}
for pattern, expected in PROCESSES.items():
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP):
        KINDS[f"ray {number.name} of {pattern}"] = ray_process_killed(pattern, number, expected)


def ray_interrupted(number: signal.Signals, times: int = 1) -> Check:
    def check(s: Suffering) -> str:
        process = s.begin(*RAY)
        s.wait_for_records(process, int(s.rng.integers(1, 8)))
        for _ in range(times):
            process.send_signal(number)
            time.sleep(0.01)
        ended = Ended(*process.finish())
        if ended.code != 0:
            said_how_to_go_on(ended, number, s.out)
        s.nothing_left()
        return carried_on(s)

    return check


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    KINDS[f"ray {number.name}"] = ray_interrupted(number)
KINDS["ray SIGINT five times"] = ray_interrupted(signal.SIGINT, 5)


@kind("ray SIGKILL of all")
def ray_all(s: Suffering) -> str:
    process = s.begin(*RAY)
    s.wait_for_records(process, int(s.rng.integers(1, 8)))
    for victim in [*s.processes()]:
        os.kill(victim.pid, signal.SIGKILL)
    process.wait()
    return carried_on(s)


def shared_memory_full(s: Suffering) -> str:
    """The run may finish, or say in one line what is the matter; it can be continued when there is room again."""
    place = Path("/dev/shm")
    process = s.begin("--json", *RAY)
    s.wait_for_records(process, int(s.rng.integers(8)))
    taken = os.statvfs(place)
    resize(place, f"{max(1, taken.f_blocks - taken.f_bfree) * taken.f_frsize}")
    try:
        found = right_or_refused_with_hint(Ended(*process.finish()), s.out)
    finally:
        resize(place, "50%")
    s.nothing_left()
    carried_on(s)
    return found


def resize(place: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", place], check=True)


if PRIVATE in os.environ:
    KINDS["ray /dev/shm full"] = shared_memory_full
