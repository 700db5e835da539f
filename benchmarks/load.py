"""python -m benchmarks.load: whether memory stays flat under loads that are large in one way each.

Each load is a real command in a scratch folder. While it runs, the memory of all its processes is added up again and
again (PSS without pages that belong to files, see benchmarks.memory), and its records or finished trials tell how far
it is. The memory after the warm-up is compared with that at the end.
"""

import argparse
import json
import os
import shlex
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.memory import proportional
from benchmarks.timing import MARK
from fedmbo_ray.cli.command import Parser, complain
from fedmbo_ray.core.errors import ConfigError, FolderDamaged
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.sweeps.folder import SweepFolder

HELP = """
Examples:
  python -m benchmarks.load
  python -m benchmarks.load clients rounds
"""
WARM, LAST = (0.2, 0.3), (0.9, 1.0)  # shares of a run between which medians are taken
SHARE, AMOUNT = 0.1, 30e6  # growth that is allowed: this share or this many bytes, whichever is more
RULE = f"flat: at most {SHARE:.0%} or {AMOUNT / 1e6:.0f} MB more at the end than after the warm-up"
BETWEEN, SLOWER = 0.5, 5  # seconds between two looks; at least this many times what a look takes
TAIL = 2**14  # bytes that are sure to hold a whole record
LIMIT = 1800.0  # seconds for one command


COLUMNS = ("load", "seconds", "began after", "finished", "after warm-up", "at the end", "growth", "%", "peak", "")


class Load(NamedTuple):
    """A command, and what it is to leave behind."""

    words: tuple[str, ...]
    rounds: int
    every: int = 1  # rounds between two records
    trials: int = 0  # of a sweep
    megabytes: float = 0  # of records, at least; such a run is killed near its end and continued

    def line(self, out: Path) -> list[str]:
        command = "tune" if self.trials else "run"
        samples = (f"tune.samples={self.trials}", f"tune.tracking_uri={store(out)}") if self.trials else ()
        rounds = (f"rounds={self.rounds}", f"record.every={self.every}")
        quadratic = "tune_configs/quadratic.yaml"
        return ["-m", "fedmbo_ray", command, quadratic, *rounds, *self.words, *samples, "--out", str(out), "--json"]


ON_RAY = ("clients.backend=ray", "algorithm.step_size=0.05")
FIGURES = "hypergradient_norm_sq, lower_error_sq, upper_loss, lower_loss, test_loss"
ONE_CLIENT = ("clients.num_clients=2", "clients.cohort_size=1", "algorithm=d_soba", "algorithm.step_size=0.01")
SHORT = ("algorithm.lower.steps=2", "algorithm.hypergradient.terms=4")
LOADS = {
    "slots": Load((*ON_RAY, "clients.num_clients=100000", "clients.cohort_size=10000", "clients.actors=2"), 20),
    "clients": Load(("clients.num_clients=1000000", "clients.cohort_size=100"), 200),
    "actors": Load(
        (
            *ON_RAY,
            "clients.cohort_size=64",
            "clients.block_size=1",
            "clients.actors=64",
            "clients.cpus_per_actor=0.015625",
        ),
        300,
    ),
    "trials": Load(("algorithm.step_size.scale={uniform: [0.1, 0.5]}",), 20, 10, trials=500),
    "rounds": Load(SHORT, 20_000, 10),
    "records": Load((*ONE_CLIENT, f"record.averaged=[{FIGURES}]"), 90_000, megabytes=50),
}
KILLED = 0.85  # the share of its rounds after which a run is killed that is to be continued


class Sample(NamedTuple):
    """What all processes of a command take at one moment, in bytes."""

    seconds: float  # since the start
    share: float  # of the work that is done
    memory: int


class Part(NamedTuple):
    """One command from its start to its end."""

    name: str
    samples: list[Sample]
    seconds: float
    faults: list[str]  # why it does not count as finished

    def median(self, between: tuple[float, float]) -> float | None:
        found = [each.memory for each in self.samples if between[0] <= each.share < between[1]]
        return statistics.median(found) if found else None

    @property
    def peak(self) -> int:
        return max((each.memory for each in self.samples), default=0)

    @property
    def began(self) -> float | None:
        """The seconds until the first work was done."""
        return next((each.seconds for each in self.samples if each.share > 0), None)

    @property
    def verdict(self) -> str:
        warm, last = self.median(WARM), self.median(LAST)
        if warm is None or last is None:
            return "not measured"
        return "flat" if is_flat(warm, last) else "grows"

    @property
    def good(self) -> bool:
        return not self.faults and self.verdict == "flat"


def is_flat(warm: float, last: float) -> bool:
    return last - warm <= max(SHARE * warm, AMOUNT)


def store(out: Path) -> str:
    return f"sqlite:///{out.parent / 'mlflow.db'}"


def watched(
    line: list[str], said: Path, share: Callable[[], float], kill_at: float = 2.0
) -> tuple[list[Sample], float, int]:
    """Samples of a command, the seconds that it took, and its exit code; it is killed when it has come to a share."""
    samples, start, mark = list[Sample](), time.monotonic(), str(said)
    env = os.environ | {"OMP_NUM_THREADS": "1", MARK: mark}
    with (
        said.open("wb") as output,
        subprocess.Popen([sys.executable, *line], stdout=output, stderr=output, env=env) as run,
    ):
        while run.poll() is None:
            before = time.monotonic()
            now = Sample(before - start, share(), proportional(mark)[1])
            if now.memory:  # it has not ended in the meantime
                samples.append(now)
            if now.share >= kill_at:
                run.kill()
            elif before - start > LIMIT:
                run.terminate()
            with suppress(subprocess.TimeoutExpired):
                run.wait(max(BETWEEN, SLOWER * (time.monotonic() - before)))
    return samples, time.monotonic() - start, run.returncode


def last_round(records: Path) -> int:
    """Of the last whole line; 0 if there is none."""
    try:
        with records.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return 0
    return int(json.loads(lines[-1])["round"]) if lines else 0


def measured(name: str, load: Load, folder: Path) -> list[Part]:
    """A load in one part; in two if it is killed and continued."""
    out, said = folder / "out", folder / "said"
    records = RunFolder(out).records_file

    def share(begin: int = 0) -> float:
        if load.trials:
            return len(list(out.glob("trials/*/seed_000/result.npz"))) / load.trials
        return max(0.0, (last_round(records) - begin) / max(load.rounds - begin, 1))

    if not load.megabytes:
        samples, seconds, code = watched(load.line(out), said, share)
        return [Part(name, samples, seconds, exit_faults(code, 0, said) + faults(load, out))]
    samples, seconds, code = watched(load.line(out), said, lambda: share() / KILLED, kill_at=1.0)
    killed = Part(f"{name}, until killed", samples, seconds, exit_faults(code, -9, said))
    begin = last_round(records)
    line = ["-m", "fedmbo_ray", "run", "--out", str(out), "--resume", "--json"]
    samples, seconds, code = watched(line, said, lambda: share(begin))
    return [killed, Part(f"{name}, resumed", samples, seconds, exit_faults(code, 0, said) + faults(load, out))]


def exit_faults(code: int, expected: int, said: Path) -> list[str]:
    last = (said.read_text().strip().splitlines() or [""])[-1]
    return [] if code == expected else [f"exit code {code}: {last[:200]}"]


def faults(load: Load, out: Path) -> list[str]:
    """What is missing, doubled or wrong in the folder that a load leaves, and in MLflow."""
    if not load.trials:
        return run_faults(load, RunFolder(out))
    trials = SweepFolder(out).trials()
    statuses = Counter(trial.status for trial in trials)
    found = (
        [] if statuses == {"finished": load.trials} else [f"trials that should be {load.trials} finished: {statuses}"]
    )
    for trial in trials:
        found += [f"trial {trial.name}: {fault}" for fault in run_faults(load, trial.run(0))]
    points = load.trials * (load.rounds // load.every + 1)
    return found + store_faults(Path(store(out).removeprefix("sqlite:///")), load.trials, points)


def run_faults(load: Load, folder: RunFolder) -> list[str]:
    try:
        records = folder.proven_records()
    except FolderDamaged as error:
        return [str(error)]
    found, expected = [each["round"] for each in records], list(range(0, load.rounds + 1, load.every))
    wrong = [] if found == expected else [f"{len(found)} records instead of {len(expected)}, or of other rounds"]
    if records and records[-1].get("status") != "finished":
        wrong.append("the last record is not that of an end")
    size = folder.records_file.stat().st_size if records else 0
    return wrong + ([f"only {size / 1e6:.0f} MB of records"] if size < 1e6 * load.megabytes else [])


def store_faults(file: Path, trials: int, points: int) -> list[str]:
    """Whether MLflow's database has each trial finished, and each point of a metric once."""
    if not file.exists():
        return ["MLflow has no database"]
    queries = {
        "finished trials": "FROM runs JOIN tags USING (run_uuid) WHERE tags.key = 'trial' AND status = 'FINISHED'",
        "records": "FROM metrics WHERE key = 'round'",
        "doubled points": "FROM (SELECT 1 FROM metrics GROUP BY run_uuid, key, step HAVING COUNT(*) > 1)",
    }
    with closing(sqlite3.connect(file)) as base:
        found = {name: base.execute(f"SELECT COUNT(*) {query}").fetchone()[0] for name, query in queries.items()}
    expected = {"finished trials": trials, "records": points, "doubled points": 0}
    return [
        f"MLflow has {found[each]} {each}, not {expected[each]}" for each in queries if found[each] != expected[each]
    ]


def report(parts: list[Part]) -> Table:
    table = Table(title=f"Memory of all processes in MB; {RULE}")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("load", "finished", "") else "right")
    for part in parts:
        warm, last = part.median(WARM), part.median(LAST)
        growth = None if warm is None or last is None else last - warm
        numbers = (in_mb(warm), in_mb(last), in_mb(growth, "+"), f"{growth / warm:+.1%}" if growth and warm else "–")
        began = "–" if part.began is None else f"{part.began:.0f}"
        done = "no" if part.faults else "yes"
        table.add_row(part.name, f"{part.seconds:.0f}", began, done, *numbers, in_mb(part.peak), part.verdict)
    return table


def in_mb(amount: float | None, sign: str = "") -> str:
    return "–" if amount is None else f"{amount / 1e6:{sign}.0f}"


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = Parser("benchmarks.load", "Measure whether memory stays flat under large loads.", HELP)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"loads (default: all): {', '.join(LOADS)}")
    args = parser.parse_args(words)
    unknown = [name for name in args.names if name not in LOADS]
    if unknown:
        parser.error(f"NAME must be one of {', '.join(LOADS)}, but got {unknown[0]!r}")
    return args


def main(words: list[str] | None = None) -> int:
    try:
        args = parse(words)
    except ConfigError as error:
        return complain(error, 2)
    parts = list[Part]()
    for name in args.names or LOADS:
        print(f"{name}: {shlex.join(['python', *LOADS[name].line(Path('OUT'))])}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="fedmbo-load-") as folder:
            parts += measured(name, LOADS[name], Path(folder))
    Console(width=None if sys.stdout.isatty() else 150).print(report(parts))
    for part in parts:
        for fault in part.faults[:5]:
            print(f"{part.name}: {fault}")
    return 0 if all(part.good for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
