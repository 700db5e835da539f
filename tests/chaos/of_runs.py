"""Faults of a run in one process: what happens, when, and what must come of it."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
from kinds import KINDS, kind
from suffering import (
    WORDS,
    Check,
    Ended,
    Suffering,
    Wrong,
    after_kill,
    carried_on,
    flipped,
    reference,
    right,
    right_or_refused,
    said_how_to_go_on,
)

from fedmbo_ray.runs.arrays import npz, read_npz


def killed_at(place: str, most: int, after: bool, words: tuple[str, ...] = WORDS) -> Check:
    def check(s: Suffering) -> str:
        s.words = words
        fault = {"at": place, "count": int(s.rng.integers(1, most)), "do": "SIGKILL", "after": after}
        code = s.begin(fault=fault).wait()
        if code not in (reference(words).code, -signal.SIGKILL):
            raise Wrong(f"exit code {code}")
        return carried_on(s)

    return check


for place, most in {"fsync": 14, "rename": 10, "remove": 4, "record": 9, "checkpoint": 6, "round": 40}.items():
    for after in (False, True):
        KINDS[f"SIGKILL {'after' if after else 'before'} {place}"] = killed_at(place, most, after)


def interrupted_at(place: str, most: int, number: signal.Signals, words: tuple[str, ...] = WORDS) -> Check:
    def check(s: Suffering) -> str:
        s.words = words
        fault = {"at": place, "count": int(s.rng.integers(1, most)), "do": number.name}
        ended = Ended(*s.begin(fault=fault).finish())
        if ended.code != reference(words).code:  # else the signal came too late
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
    while process.poll() is None and psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.1)
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


def finished(how: str) -> Check:
    """Whatever is changed in a finished run, and looks whole, is found out, or made again."""

    def check(s: Suffering) -> str:
        right(Ended(*s.begin("--json").finish()), s.out)
        other = s.folder / "other"
        Ended(*s.start(*WORDS, "seed=7", "--out", str(other)).finish())
        {
            "a line missing": lambda: changed_lines(s, lambda rows, at: rows[:at] + rows[at + 1 :]),
            "a line twice": lambda: changed_lines(s, lambda rows, at: rows[: at + 1] + rows[at:]),
            "a foreign last line": lambda: changed_lines(s, lambda rows, at: [*rows, FOREIGN[at % len(FOREIGN)]]),
            "a figure changed": lambda: changed_lines(s, with_foreign_figure),
            "another run's result": lambda: shutil.copy(other / "result.npz", s.out),
            "another run's records and result": lambda: [
                shutil.copy(other / name, s.out) for name in ("records.jsonl", "result.npz")
            ],
            "another run's config": lambda: shutil.copy(other / "config.yaml", s.out),
            "an edited config": lambda: edited(s.out / "config.yaml", "seed: 0", "seed: 3"),
            "a shorter config": lambda: edited(s.out / "config.yaml", "rounds: 40", "rounds: 20"),
        }[how]()
        return right_or_refused(s.resume(), s.out)

    return check


FOREIGN = [b'{"round": 40}\n', b'{"round": "40"}\n', b"[]\n", b"?\n", b"{"]


def changed_lines(s: Suffering, change: Callable[[list[bytes], int], list[bytes]]) -> None:
    path = s.out / "records.jsonl"
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(change(rows, int(s.rng.integers(len(rows))))))


def with_foreign_figure(rows: list[bytes], at: int) -> list[bytes]:
    """With text, a list or another number where a figure was."""
    value = ["many", [1], 3.5][at % 3]
    return [*rows[:at], json.dumps({**json.loads(rows[at]), "upper_loss": value}).encode() + b"\n", *rows[at + 1 :]]


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if old not in text:
        raise Wrong(f"{path} has no {old!r}")
    path.write_text(text.replace(old, new))


for how in (
    "a line missing",
    "a line twice",
    "a foreign last line",
    "a figure changed",
    "another run's result",
    "another run's records and result",
    "another run's config",
    "an edited config",
    "a shorter config",
):
    KINDS[f"finished run: {how}"] = finished(how)


def junk(rng: np.random.Generator) -> object:
    return ["text", [1], {"a": 1}, None, -1, 1.5, True, float("nan")][int(rng.integers(8))]


@kind("newest checkpoint: other content with the right digest")
def other_content(s: Suffering) -> str:
    after_kill(s, int(s.rng.integers(4, 9)))
    path = sorted((s.out / "checkpoints").glob("*.npz"))[-1]
    arrays = read_npz(path) or {}
    about = json.loads(str(arrays["_about"]))
    part = [about, about["costs"]][int(s.rng.integers(2))]
    key = sorted(part)[int(s.rng.integers(len(part)))]
    part[key] = None if part[key] == (value := junk(s.rng)) or key == "data_epochs" else value
    some = [np.arange(3), np.array(["a"]), np.zeros((2, 2)), np.array(2.0)][int(s.rng.integers(4))]
    name = ["_about", "x", "another"][int(s.rng.integers(3))]
    if s.rng.random() < 0.5 and key not in ("data_epochs", "wall_seconds", "cpu_seconds"):
        arrays["_about"] = np.array(json.dumps(about))
    else:
        arrays[name] = some
    path.write_bytes(npz(arrays))
    return right_or_refused(s.resume(), s.out)


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
