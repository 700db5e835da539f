"""Faults of the processes of Ray that a run started."""

import os
import signal
import time

from kinds import KINDS, kind
from suffering import (
    RAY,
    Check,
    Ended,
    Suffering,
    Wrong,
    carried_on,
    right_or_refused,
    said_how_to_go_on,
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
        found = right_or_refused(Ended(*process.finish()), s.out)
        if found not in expected:
            raise Wrong(f"{found}, but {' or '.join(expected)} was expected")
        s.nothing_left()
        carried_on(s)
        return found

    return check


for pattern, expected in {
    "ClientActor": ("right",),
    "ray::Driver": ("right",),
    "raylet/raylet": ("right", "refused"),
    "gcs_server": ("right", "refused"),
}.items():
    KINDS[f"ray SIGKILL of {pattern}"] = ray_process_killed(pattern, signal.SIGKILL, expected)
KINDS["ray SIGSTOP of ClientActor"] = ray_process_killed("ClientActor", signal.SIGSTOP, ("right",))


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
