"""Faults of sweeps and studies: their records are compared in the folder and in MLflow."""

import json
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from forked import Forked, Forks
from kinds import KINDS
from suffering import WORDS, Check, Ended, Suffering, Wrong, flipped, lines

from fedmbo_ray.runs.folder import RunFolder

GRID = ("algorithm.step_size={grid: [0.03, 0.05]}", "algorithm.lower.step_size=0.5", "tune.scheduler=fifo")
HALVED = ("algorithm.step_size={grid: [0.02, 0.03, 0.05]}", "tune.scheduler={name: halving, grace: 5, reduction: 2}")
DOUBLED = "select key from metrics group by run_uuid, key having count(*) > count(distinct step)"
ADVICE = re.compile(r"\) failed: .*remove (\S+) to run it again$", re.MULTILINE)
Found = dict[str, tuple[list[int], list[str]]]


class Asked(NamedTuple):
    """A command that runs trials."""

    command: str
    words: tuple[str, ...]
    first: str  # the file that shows its progress, of how many lines
    lines: int


SWEEP = Asked("tune", (*WORDS, *GRID), "trials/00000/seed_000/records.jsonl", 8)
HALVING = Asked("tune", (*WORDS, *HALVED), "trials/00002/seed_000/records.jsonl", 5)
POOLS = SWEEP._replace(words=(*SWEEP.words, "clients.backend=ray", "clients.actors=1", "clients.cpus_per_actor=0.1"))
STUDY = Asked(
    "study", ("theory", "--scale", "smoke", "--only", "inner"), "inner/trials/00002/seed_000/records.jsonl", 3
)


def started(s: Suffering, asked: Asked, *more: str) -> Forked:
    return s.start(*asked.words, *more, "--out", str(s.out), command=asked.command)


def under_way(s: Suffering, asked: Asked) -> Forked:
    """A command that has made some progress."""
    process, deadline = started(s, asked), time.monotonic() + 120
    wanted = int(s.rng.integers(1, asked.lines))
    while process.poll() is None and lines(s.out / asked.first) < wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return process


def continued(s: Suffering, asked: Asked) -> Ended:
    return Ended(*started(s, asked, "--resume").finish())


def killed(asked: Asked, number: signal.Signals) -> Check:
    """What dies and is continued has the records of one that does not, in its folder and in MLflow."""

    def check(s: Suffering) -> str:
        process = under_way(s, asked)
        process.send_signal(number)
        code = process.wait()
        if number == signal.SIGKILL:
            s.no_process_left()
        elif code not in (0, 128 + number) or "Traceback" in process.said()[1]:
            raise Wrong(f"exit code {code}: {process.said()[1][-1000:]}")
        return all_right(continued(s, asked), s, asked)

    return check


def saved(asked: Asked, number: signal.Signals) -> Check:
    """Of every trial that was interrupted, the newest checkpoint is of its last whole round; all comes out right."""

    def check(s: Suffering) -> str:
        process = under_way(s, asked)
        time.sleep(float(s.rng.uniform(0, 0.5)))
        process.send_signal(number)
        code, _, err = process.finish()
        if code not in (0, 128 + number) or "Traceback" in err:
            raise Wrong(f"exit code {code}: {err[-1000:]}")
        if code and f"continue: fedmbo tune --out {s.out} --resume" not in err.splitlines()[-1]:
            raise Wrong(f"no hint: {err[-500:]}")
        if unsaved := [run for path in s.out.rglob("seed_*") if (run := unsaved_rounds(path)) is not None]:
            raise Wrong(f"rounds were lost: {unsaved}; {err[-1000:]}")
        s.no_process_left()
        return all_right(continued(s, asked), s, asked)

    return check


def unsaved_rounds(path: Path) -> str | None:
    """Of a run with a record of every round: how its last one is not that of its newest checkpoint."""
    run = RunFolder(path)
    last = (run.records() or [{"round": 0}])[-1]
    newest = max(run.saved_round(), 0)
    return None if "status" in last or newest == last["round"] else f"{path}: {last['round']}, but saved {newest}"


def damaged(asked: Asked, how: str) -> Check:
    """Whatever is damaged of one that was killed is found out, or made again; what a trial advises to do helps."""

    def check(s: Suffering) -> str:
        process = under_way(s, asked)
        process.kill()
        process.wait()
        s.no_process_left()
        files = [path for path in sorted(s.out.rglob("*")) if path.is_file() and path.name != ".lock"]
        path = files[int(s.rng.integers(len(files)))]
        data = path.read_bytes()
        path.write_bytes(harmed(data, how, s.rng))
        ended = continued(s, asked)
        try:
            if ended.refused:
                nothing_doubled(s.folder)
                return "refused"
            if (
                advice := re.search(r"\(.*\) failed: .*remove (\S+) to run it again$", ended.err, re.MULTILINE)
            ) is not None:
                shutil.rmtree(advice[1])
                all_right(continued(s, asked), s, asked)
                return "refused"
            return all_right(ended, s, asked)
        except Wrong as wrong:
            raise Wrong(f"{path.relative_to(s.out)}: {wrong}") from None

    return check


def finished(asked: Asked, how: str) -> Check:
    """What is changed in one that has come to its end is found out, or made again."""

    def check(s: Suffering) -> str:
        all_right(Ended(*started(s, asked).finish()), s, asked)
        FAULTS[how](s)
        ended = continued(s, asked)
        if ended.refused:
            nothing_doubled(s.folder)
            return "refused"
        return all_right(ended, s, asked)

    return check


def some(s: Suffering, pattern: str, count: int = 1) -> list[Path]:
    found = sorted(s.out.rglob(pattern))
    return [found[int(number)] for number in s.rng.permutation(len(found))[:count]]


def damaged_file(s: Suffering) -> None:
    (path,) = some(s, "*.*")
    while not path.is_file():
        (path,) = some(s, "*.*")
    how = ("a bit flipped", "truncated", "emptied", "random")[int(s.rng.integers(4))]
    path.write_bytes(harmed(path.read_bytes(), how, s.rng))


def lost_line(s: Suffering) -> None:
    (path,) = some(s, "records.jsonl")
    rows = path.read_bytes().splitlines(keepends=True)
    del rows[int(s.rng.integers(len(rows)))]
    path.write_bytes(b"".join(rows))


def edited(name: str) -> Callable[[Suffering], None]:
    """A key of a config with another value, in a file that is YAML as before."""

    def edit(s: Suffering) -> None:
        (path,) = some(s, name)
        old, new = [("seed: ", "seed: 3"), ("rounds: ", "rounds: 3"), ("every: ", "every: 1")][int(s.rng.integers(3))]
        path.write_text(path.read_text().replace(old, new, 1))

    return edit


def swapped(name: str) -> Callable[[Suffering], None]:
    """Two files or folders of this name, of two trials, one in place of the other."""

    def swap(s: Suffering) -> None:
        one, other = some(s, name, 2)
        third = s.folder / "third"
        for old, new in ((one, third), (other, one), (third, other)):
            old.rename(new)

    return swap


FAULTS: dict[str, Callable[[Suffering], None]] = {
    "a file damaged": damaged_file,
    "a line lost": lost_line,
    "its config edited": edited("sweep.yaml"),
    "a trial's config edited": edited("config.yaml"),
    "a point edited": lambda s: [
        path.write_text(path.read_text().replace("0.0", "0.1")) for path in some(s, "point.json")
    ],
    "two trials swapped": swapped("trials/*"),
    "two runs swapped": swapped("seed_000"),
    "files of two trials swapped": lambda s: swapped(
        ["records.jsonl", "config.yaml", "point.json", "checkpoints"][int(s.rng.integers(4))]
    )(s),
}


def harmed(data: bytes, how: str, rng: np.random.Generator) -> bytes:
    if how == "a bit flipped":
        return flipped(data, rng)
    return {"truncated": data[: int(rng.integers(len(data) + 1))], "emptied": b"", "random": rng.bytes(len(data))}[how]


def all_right(ended: Ended, s: Suffering, asked: Asked) -> str:
    """All trials with the right bits and all their records once, in the folder and in MLflow."""
    if ended.code != 0:
        raise Wrong(f"exit code {ended.code}: {ended.err[-2000:]}")
    expected, runs = undisturbed(asked)
    found = records(s.out)
    if found != expected:
        others = [name for name in expected if found.get(name) != expected[name]]
        raise Wrong(f"trials came out differently: {others}, such as {found.get(others[0]) if others else found}")
    nothing_doubled(s.folder)
    if counted(s.folder) != runs:
        raise Wrong(f"MLflow has {counted(s.folder)}, where {runs} was expected")
    return "right"


@cache
def undisturbed(asked: Asked) -> tuple[Found, dict[str, Any]]:
    """What it leads to where nothing happens: records and bits of every run, and what MLflow has."""
    forks = Forks()
    try:
        with TemporaryDirectory(prefix="chaos") as folder:
            s = Suffering(forks, Path(folder), np.random.default_rng(0))
            ended = Ended(*started(s, asked).finish())
            if ended.code != 0:
                raise Wrong(f"nothing happened, but exit code {ended.code}: {ended.err[-2000:]}")
            return records(s.out), counted(s.folder)
    finally:
        forks.close()


def records(folder: Path) -> Found:
    """The rounds of every run, and the digests of its end."""
    found: Found = {}
    for path in sorted(folder.rglob("seed_*/records.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        name, last = str(path.parent.relative_to(folder)), rows[-1] if rows else {}
        found[name] = [row["round"] for row in rows], [str(last.get(key)) for key in ("x_sha256", "y_sha256")]
    return found


def counted(folder: Path) -> dict[str, Any]:
    """How many runs there are in MLflow by status, and how many points of each figure."""
    with sqlite3.connect(folder / "mlflow.db") as store:
        runs = store.execute("select status, count(*) from runs group by 1 order by 1").fetchall()
        points = store.execute("select count(*) from metrics where key = 'upper_loss'").fetchone()
    return {"runs": runs, "points of upper_loss": points[0]}


def nothing_doubled(folder: Path) -> None:
    if not (folder / "mlflow.db").exists():
        return
    with sqlite3.connect(folder / "mlflow.db") as store:
        if doubled := store.execute(DOUBLED).fetchall():
            raise Wrong(f"MLflow has points twice: {doubled[:5]}")


for name, asked in {"sweep": SWEEP, "sweep by halving": HALVING, "sweep of pools": POOLS}.items():
    rare = asked._replace(words=(*asked.words, "record.every=1", "record.checkpoint_every=100000"), lines=30)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        KINDS[f"{name}, saved at {number.name}"] = saved(rare, number)
for name, asked in {"sweep": SWEEP, "sweep by halving": HALVING, "study": STUDY}.items():
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        KINDS[f"{name} {number.name}"] = killed(asked, number)
    for how in ("a bit flipped", "truncated", "emptied", "random"):
        KINDS[f"{name} file: {how}"] = damaged(asked, how)
    for fault in FAULTS:
        KINDS[f"{name} finished: {fault}"] = finished(asked, fault)
