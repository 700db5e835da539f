"""Runs that suffer, and whether they come to the right end all the same."""

import json
import os
import re
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from forked import Forked, Forks
from own_mounts import PRIVATE

from fedmbo_ray.core.scratch import remove_stale

HERE = Path(__file__).parent
PATHS = (str(HERE), str(HERE.parent / "support"), str(HERE.parent.parent))
MARK = "FEDMBO_CHAOS"
SESSIONS = {"ray", "hosts"}  # folders of Ray's, which keeps its logs, and of hosts, which are gone
PROGRESS = re.compile(
    r"(round \d|starting Ray and|continuing after|waiting for |\d+ trials, |\d+/\d+ trials|trial \S+ \w+ in round)"
)
FEW = 3  # lines that a command may say besides its progress and its error
WORDS = ("rounds=40", "record.every=5", "record.checkpoint_every=7", "clients.num_clients=20", "clients.block_size=5")
DIVERGING = (*WORDS, "algorithm.step_size=50", "record.explosion=3", "record.checkpoint_every=1")
GENTLE = ("algorithm.step_size=0.001", "algorithm.lower.step_size=0.001")  # so that nothing diverges
EXACT = (*WORDS, "problem=ridge_head", "data=small_data:numbers", "data.partition=iid", "record.exact_every=5", *GENTLE)
RAY = ("clients.backend=ray", "clients.actors=2", "clients.cpus_per_actor=0.5")


class Wrong(AssertionError):
    """What a campaign is looking for."""


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def refused(self) -> bool:
        """Whether it ended with one line that says why, and hardly any other."""
        said = [line for line in self.err.splitlines() if not PROGRESS.match(line)]
        errors = [line for line in said if line.startswith("error: ")]
        few = len(said) <= len(errors) + FEW
        return (
            self.code in (1, 2) and len(errors) == 1 and few and len(errors[0]) < 2000 and "Traceback" not in self.err
        )


class Suffering:
    """Commands of one scenario, in a folder of its own; `mark` is in the environment of all their processes."""

    def __init__(self, forks: Forks, folder: Path, rng: np.random.Generator) -> None:
        self.forks, self.folder, self.rng = forks, folder, rng
        self.mark = uuid.uuid4().hex
        self.out, self.words = folder / "run", WORDS  # of the run in the scenario's folder
        self.tracking = f"sqlite:///{folder}/mlflow.db"

    def start(self, *words: str, command: str = "run", fault: dict[str, Any] | None = None) -> Forked:
        environment = {**os.environ, MARK: self.mark, "PYTHONPATH": os.pathsep.join(PATHS)}
        environment |= {"MLFLOW_TRACKING_URI": self.tracking, "TMPDIR": str(self.folder)}
        program = "from hooks import begin; begin()"
        return self.forks.start("-c", program, json.dumps(fault), command, *words, cwd=self.folder, env=environment)

    def run(self, *words: str, command: str = "run", fault: dict[str, Any] | None = None) -> Ended:
        return Ended(*self.start(*words, command=command, fault=fault).finish())

    def begin(self, *words: str, fault: dict[str, Any] | None = None) -> Forked:
        """A new run in the scenario's folder."""
        return self.start(*self.words, *words, "--out", str(self.out), fault=fault)

    def resume(self) -> Ended:
        return self.run("--out", str(self.out), "--resume", "--json", "clients.backend=in_process")

    def wait_for_records(self, process: Forked, count: int) -> None:
        deadline = time.monotonic() + 120
        while process.poll() is None and lines(self.out / "records.jsonl") < count:
            if time.monotonic() > deadline:
                raise Wrong(f"no {count} records after two minutes: {process.said()}")
            time.sleep(0.01)

    def processes(self) -> list[psutil.Process]:
        """All that still runs of this scenario."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def of_kind(self, pattern: str) -> list[psutil.Process]:
        found = []
        for process in self.processes():
            with suppress(psutil.Error):
                if re.search(pattern, " ".join(process.cmdline())):
                    found.append(process)
        return found

    def no_process_left(self) -> None:
        """Raise Wrong if a process has stayed behind.

        A worker of Ray's that was starting when its raylet was killed finds that out when it has imported everything.
        """
        deadline = time.monotonic() + 60
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        names = [" ".join(process.cmdline())[:200] for process in left]
        for process in left:
            process.kill()
        if names:
            raise Wrong(f"processes left behind: {names}")

    def nothing_left(self) -> None:
        """Raise Wrong if a process, a file, a socket or shared memory has stayed behind.

        After a SIGKILL, a half-written file stays until the run is continued.
        """
        self.no_process_left()
        remove_stale(self.folder)  # as the next command would
        own = [path for path in self.folder.rglob("*") if not SESSIONS & set(path.parts)]
        files = [path for path in own if re.fullmatch(r"\..*\.new|fedmbo-\d+-\d+-.*", path.name) or path.is_socket()]
        if PRIVATE in os.environ:
            files += Path("/dev/shm").iterdir()
        if files:
            raise Wrong(f"files left behind: {[str(path) for path in files]}")


def lines(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.read_bytes().count(b"\n")
    return 0


class Undisturbed(NamedTuple):
    digests: tuple[str, ...]
    rounds: list[int]

    @property
    def code(self) -> int:
        """The exit code of a run that ends so."""
        return 1 if "diverged" in self.digests else 0


@cache
def reference(words: tuple[str, ...] = WORDS) -> Undisturbed:
    """The digests of x and y, and the recorded rounds, where nothing happens."""
    from fedmbo_ray.api.experiment import run_experiment

    run = run_experiment(None, *words, progress=False)
    return Undisturbed(digests_in(run.last), run.records["round"].tolist())


def digests_in(last: dict[str, Any]) -> tuple[str, ...]:
    """What a last record says about the whole run."""
    return tuple(str(last[key]) for key in ("status", "x_sha256", "y_sha256", "records_sha256"))


def right(ended: Ended, folder: Path, words: tuple[str, ...] = WORDS) -> None:
    """Raise Wrong unless a run has come to the right end, with all its records."""
    expected = reference(words)
    if ended.code != expected.code:
        raise Wrong(f"exit code {ended.code}: {ended.err[-2000:]}")
    last = json.loads(ended.out.splitlines()[-1])
    if digests_in(last) != expected.digests:
        raise Wrong("ended with other bits")
    rounds = [json.loads(line)["round"] for line in (folder / "records.jsonl").read_text().splitlines()]
    if rounds != expected.rounds:
        raise Wrong(f"records of the rounds {rounds}")


def carried_on(s: Suffering) -> str:
    """Continue, or begin anew where nothing was kept yet."""
    ended = s.resume() if (s.out / "config.yaml").exists() else Ended(*s.begin("--json").finish())
    right(ended, s.out, s.words)
    return "right"


def right_or_refused(ended: Ended, folder: Path) -> str:
    if ended.refused:
        return "refused"
    right(ended, folder)
    return "right"


def says_how_to_go_on(ended: Ended, out: Path) -> bool:
    """Whether a command says how to continue, if there is something to continue."""
    return not (out / "config.yaml").exists() or f"; continue: fedmbo run --out {out} --resume" in ended.err


def said_how_to_go_on(ended: Ended, number: int, out: Path) -> None:
    """Raise Wrong unless an interrupted command says so in its last line, with the exit code of its signal."""
    if ended.code != 128 + number or "Traceback" in ended.err:
        raise Wrong(f"exit code {ended.code} after signal {number}: {ended.err[-2000:]}")
    if (out / "records.jsonl").exists() and f"continue: fedmbo run --out {out} --resume" not in ended.err:
        raise Wrong(f"no hint: {ended.err[-500:]}")


def flipped(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    if changed:
        changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def after_kill(suffering: Suffering, count: int) -> None:
    """A run in the scenario's folder, killed after that many records."""
    process = suffering.begin(fault={"at": "record", "count": count, "do": "SIGKILL", "after": True})
    code = process.wait()
    if code != -signal.SIGKILL:
        raise Wrong(f"not killed, but {code}: {process.said()}")


Check = Callable[[Suffering], str]
