"""Every kind of fault: what happens, when, and what must come of it. Each returns `right` or `refused`."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable

import numpy as np
from suffering import (
    RAY,
    ROUNDS,
    WORDS,
    Check,
    Ended,
    Suffering,
    Wrong,
    after_kill,
    flipped,
    lines,
    reference,
    right,
    right_or_refused,
    said_how_to_go_on,
)

from fedmbo_ray.runs.arrays import npz

KINDS: dict[str, Check] = {}
SLOW = ("ray ", "sweep ")  # kinds of twenty seconds and more


def kind(name: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        KINDS[name] = check
        return check

    return register


def killed_at(place: str, most: int, after: bool) -> Check:
    def check(s: Suffering) -> str:
        fault = {"at": place, "count": int(s.rng.integers(1, most)), "do": "SIGKILL", "after": after}
        code = s.begin(fault=fault).wait()
        if code not in (0, -signal.SIGKILL):
            raise Wrong(f"exit code {code}")
        return carried_on(s)

    return check


def carried_on(s: Suffering) -> str:
    """Continue, or begin anew where nothing was kept yet."""
    ended = s.resume() if (s.out / "config.yaml").exists() else Ended(*s.begin("--json").finish())
    right(ended, s.out)
    return "right"


for place, most in {"fsync": 14, "rename": 10, "remove": 4, "record": 9, "checkpoint": 6, "round": 40}.items():
    for after in (False, True):
        KINDS[f"SIGKILL {'after' if after else 'before'} {place}"] = killed_at(place, most, after)


def interrupted_at(place: str, most: int, number: signal.Signals) -> Check:
    def check(s: Suffering) -> str:
        fault = {"at": place, "count": int(s.rng.integers(1, most)), "do": number.name}
        ended = Ended(*s.begin(fault=fault).finish())
        if ended.code != 0:  # else the signal came too late
            said_how_to_go_on(ended, number, s.out)
        return carried_on(s)

    return check


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    for place, most in {"round": 40, "checkpoint": 6, "fsync": 14, "record": 9}.items():
        KINDS[f"{number.name} in {place}"] = interrupted_at(place, most, number)


@kind("storm of signals")
def storm(s: Suffering) -> str:
    place, most = [("round", 40), ("checkpoint", 6), ("fsync", 14)][int(s.rng.integers(3))]
    ended = Ended(*s.begin(fault={"at": place, "count": int(s.rng.integers(1, most)), "do": "storm"}).finish())
    if ended.code not in (0, 129, 130, 143) or "Traceback" in ended.err:
        raise Wrong(f"exit code {ended.code}: {ended.err[-2000:]}")
    return carried_on(s)


@kind("SIGSTOP and SIGCONT")
def stopped(s: Suffering) -> str:
    process = s.begin("--json", fault={"at": "round", "count": int(s.rng.integers(1, 40)), "do": "SIGSTOP"})
    time.sleep(2)
    process.send_signal(signal.SIGCONT)
    right(Ended(*process.finish()), s.out)
    return "right"


def failing(do: str) -> Check:
    """The run may finish, or say in one line what is the matter; it can be continued without the fault."""

    def check(s: Suffering) -> str:
        ended = Ended(*s.begin("--json", fault={"at": "round", "count": int(s.rng.integers(1, 40)), "do": do}).finish())
        found = right_or_refused(ended, s.out)
        carried_on(s)
        return found

    return check


for do in ("disk_full", "read_only", "no_handles", "no_memory", "clock_back"):
    KINDS[do.replace("_", " ")] = failing(do)


FILES = {"config": "config.yaml", "records": "records.jsonl", "newest checkpoint": "-1", "oldest checkpoint": "0"}


def damaged(which: str, how: str) -> Check:
    def check(s: Suffering) -> str:
        after_kill(s, int(s.rng.integers(4, 9)))
        saved = sorted((s.out / "checkpoints").glob("*.npz"))
        path = saved[int(FILES[which])] if FILES[which] in ("0", "-1") else s.out / FILES[which]
        data = path.read_bytes()
        rows = data.splitlines(keepends=True)
        at = int(s.rng.integers(max(len(rows), 1)))
        content = {
            "a bit flipped": lambda: flipped(data, s.rng),
            "truncated": lambda: data[: int(s.rng.integers(len(data)))],
            "emptied": lambda: b"",
            "random": lambda: s.rng.bytes(len(data)),
            "a line twice": lambda: b"".join([*rows[: at + 1], *rows[at:]]),
            "a line missing": lambda: b"".join([*rows[:at], *rows[at + 1 :]]),
            "foreign": lambda: foreign(s, path.relative_to(s.out)),
            "of a future version": lambda: npz({"_about": np.array('{"format": 99}')}),
        }[how]()
        path.write_bytes(content)
        ended = s.resume()
        return right_or_refused(ended, s.out)

    return check


def foreign(s: Suffering, name: object) -> bytes:
    """The same file of a run with another seed."""
    other = s.folder / "other"
    process = s.start(
        *WORDS, "seed=7", "--out", str(other), fault={"at": "record", "count": 8, "do": "SIGKILL", "after": True}
    )
    process.wait()
    path = other / str(name)
    return path.read_bytes() if path.exists() else max((other / "checkpoints").glob("*.npz")).read_bytes()


for which in FILES:
    for how in ("a bit flipped", "truncated", "emptied", "random", "foreign"):
        KINDS[f"{which}: {how}"] = damaged(which, how)
for how in ("a line twice", "a line missing"):
    KINDS[f"records: {how}"] = damaged("records", how)
KINDS["newest checkpoint: of a future version"] = damaged("newest checkpoint", "of a future version")


@kind("finished run: damaged")
def finished_damaged(s: Suffering) -> str:
    """Whatever is damaged of a finished run is found out, or made again."""
    right(Ended(*s.begin("--json").finish()), s.out)
    files = [path for path in s.out.rglob("*") if path.is_file() and path.name != ".lock"]
    path = files[int(s.rng.integers(len(files)))]
    path.write_bytes(flipped(path.read_bytes(), s.rng))
    return right_or_refused(s.resume(), s.out)


@kind("two processes in one folder")
def two(s: Suffering) -> str:
    both = [s.begin("--json"), s.begin("--json")]
    ended = [Ended(*process.finish()) for process in both]
    found = sorted(right_or_refused(each, s.out) for each in ended)
    if found != ["refused", "right"]:
        raise Wrong(f"two processes in one folder: {found}")
    return "right"


@kind("power cut")
def power_cut(s: Suffering) -> str:
    """What is on the disk at some moment, and not in the caches of a machine that is gone."""
    image, copy = s.folder / "disk", s.folder / "copy"
    first, second = s.folder / "first", s.folder / "second"
    shell("truncate", "-s", "32M", image)
    shell("mkfs.ext4", "-q", "-F", image)
    for folder in (first, second):
        folder.mkdir()
    shell("mount", "-o", "loop", image, first)
    try:
        s.out = first / "run"
        process = s.begin()
        s.wait_for_records(process, int(s.rng.integers(1, 9)))
        time.sleep(float(s.rng.uniform(0, 0.3)))
        process.send_signal(signal.SIGSTOP)
        shutil.copy(image, copy)
        process.kill()
        process.wait()
    finally:
        shell("umount", first)
    shell("mount", "-o", "loop", copy, second)
    try:
        s.out = second / "run"
        return carried_on(s)
    finally:
        shell("umount", second)


def shell(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


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


SWEEP = (
    *WORDS,
    "algorithm.step_size={grid: [0.03, 0.05]}",
    "algorithm.lower.step_size=0.5",
    "tune.scheduler=fifo",
    "--out",
)
METRICS = "select run_uuid, count(*), count(distinct step) from metrics where key = 'upper_loss' group by 1"


def sweep_killed(number: signal.Signals) -> Check:
    """A sweep that dies and is continued has the records of one that does not, in its folder and in MLflow."""

    def check(s: Suffering) -> str:
        place = s.folder / "sweep"
        process = s.start(*SWEEP, str(place), command="tune")
        records, deadline = place / "trials/00000/seed_000/records.jsonl", time.monotonic() + 120
        wanted = int(s.rng.integers(1, 8))
        while process.poll() is None and lines(records) < wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        code = process.wait()
        if number == signal.SIGKILL:
            s.nothing_left()
        elif code not in (0, 128 + number):
            raise Wrong(f"exit code {code}: {process.said()[1][-1000:]}")
        ended = s.run(*SWEEP, str(place), "--resume", command="tune")
        if ended.code != 0:
            raise Wrong(f"exit code {ended.code}: {ended.err[-2000:]}")
        return sweep_right(s)

    return check


def sweep_right(s: Suffering) -> str:
    """Two trials with the right bits at the second point, all their records once, in the folder and in MLflow."""
    for name in ("00000", "00001"):
        rows = (s.folder / f"sweep/trials/{name}/seed_000/records.jsonl").read_text().splitlines()
        if [json.loads(row)["round"] for row in rows] != ROUNDS:
            raise Wrong(f"trial {name} has the records {rows}")
    last = json.loads(rows[-1])
    if (last["x_sha256"], last["y_sha256"]) != reference():
        raise Wrong("a trial finished with other bits")
    with sqlite3.connect(s.folder / "mlflow.db") as store:
        (runs,) = store.execute("select count(*) from runs").fetchone()
        points = store.execute(METRICS).fetchall()
    if runs != 3 or [point[1:] for point in points] != [(9, 9)] * len(points) or len(points) < 2:
        raise Wrong(f"MLflow has {runs} runs with {points}")
    return "right"


for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
    KINDS[f"sweep {number.name}"] = sweep_killed(number)
