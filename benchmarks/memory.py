"""python -m benchmarks.memory: how much memory a large file of rows takes on a node, once or once per actor.

The same short run is done with a tiny file and with a large one, whose rows have the same shape. While it runs, the
memory of all its processes is added up again and again (PSS, in which a page that k processes share counts 1/k in
each), and so are the pages of the file that the system caches. What the large run takes more than the tiny one, cache
included, is what the data cost. For this difference, pages that belong to files are left out: those of the data are in
the cache already, and those of libraries count less while processes other than the run's have them open, too.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.page_cache import PageCache
from benchmarks.timing import MARK, is_marked
from fedmbo_ray.cli.command import Parser, complain
from fedmbo_ray.core.errors import ConfigError, RunFailed

HELP = """
Examples:
  python -m benchmarks.memory
  python -m benchmarks.memory --gigabytes 0.5 --actors 2
"""
COLUMNS, CLASSES, TINY, CHUNK = 512, 10, 2048, 2**14  # of a row; labels; rows of the tiny file; rows written together
ROW = 4 * COLUMNS  # bytes
ALLOWED = 1.3  # times the size of the file
RUN = ("rounds=20", "record.every=10", "clients.num_clients=50", "problem.backbone.width=32")
BETWEEN = 0.05  # seconds between two looks


class Look(NamedTuple):
    """What a run takes at one moment, in bytes."""

    total: int = 0  # PSS of all its processes
    own: int = 0  # of this, without pages that belong to files
    cache: int = 0  # pages of the data file

    @property
    def together(self) -> int:
        return self.own + self.cache


class Peak(NamedTuple):
    """The most that a run took: of memory in its processes, and at another moment with the cache."""

    total: int = 0
    fullest: Look = Look()

    def with_look(self, look: Look) -> "Peak":
        return Peak(max(look.total, self.total), max(look, self.fullest, key=lambda each: each.together))


def write_rows(path: Path, rows: int) -> None:
    """Rows of float32 around the mean of their label, stored without compression and never in memory as a whole."""
    rng = np.random.default_rng(0)
    labels, means = rng.integers(CLASSES, size=rows), rng.standard_normal((CLASSES, COLUMNS), dtype=np.float32)
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("inputs.npy", "w", force_zip64=True) as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (rows, COLUMNS)}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, rows, CHUNK):
                part = means[labels[start : start + CHUNK]]
                file.write((part + rng.standard_normal(part.shape, dtype=np.float32)).data)
        with archive.open("targets.npy", "w") as file:
            np.lib.format.write_array(file, labels)


def measured(path: Path, actors: int, out: Path) -> Peak:
    """The peak of a run on a file, in one process or on Ray with that many actors."""
    data = f"data={{name: file, path: {path}, partition: iid}}"
    where = ("clients.backend=in_process",) if actors == 0 else ("clients.backend=ray", f"clients.actors={actors}")
    line = [sys.executable, "-m", "fedmbo_ray", "run", data, *RUN, *where, "--out", str(out), "--json"]
    peak, mark = Peak(), str(out)
    env = os.environ | {"OMP_NUM_THREADS": "1", MARK: mark}
    with (
        PageCache(path) as cache,
        (out.parent / "said").open("wb") as said,
        subprocess.Popen(line, stdout=said, stderr=said, env=env) as run,
    ):
        cache.drop()
        while run.poll() is None:
            peak = peak.with_look(Look(*proportional(mark), cache.held()))
            with suppress(subprocess.TimeoutExpired):
                run.wait(BETWEEN)
    if run.returncode:
        raise RunFailed((out.parent / "said").read_text().strip())
    return peak


def proportional(mark: str) -> tuple[int, int]:
    """The PSS of all processes with this mark in their environment: in all, and without pages that belong to files."""
    each = [pss(process.pid) for process in psutil.process_iter() if is_marked(process, mark)]
    return sum(total for total, _ in each), sum(own for _, own in each)


def pss(pid: int) -> tuple[int, int]:
    """That of a process in bytes, and that of its pages that belong to no file; zeros if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    found = {name: 1024 * int(amount.split()[0]) for name, _, amount in (line.partition(":") for line in lines)}
    return found["Pss"], found["Pss_Anon"] + found["Pss_Shmem"]


def report(size: int, peaks: dict[int, tuple[Peak, Peak]]) -> Table:
    table = Table(title=f"A file of {size / 1e6:.0f} MB; peaks of a whole run in MB")
    head = ("tiny: all processes", "large: all processes", "more for data", "file in the cache", "both", "÷ size")
    for name in ("", *head):
        table.add_column(name, justify="right" if name else "left")
    for actors, (tiny, large) in peaks.items():
        both = cost(tiny, large)
        numbers = (tiny.total, large.total, both - large.fullest.cache, large.fullest.cache, both)
        where = f"Ray, {actors} actors" if actors else "in one process"
        table.add_row(where, *(f"{number / 1e6:.0f}" for number in numbers), f"{both / size:.2f}")
    return table


def cost(tiny: Peak, large: Peak) -> int:
    """What the large file takes: the most of processes and cache at one moment, without what a run takes anyway."""
    return large.fullest.together - tiny.fullest.own


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = Parser("benchmarks.memory", "Measure how much memory a large file takes on a node.", HELP)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="size of the large file, in units of 2^30 bytes")
    parser.add_argument("--actors", type=int, nargs="*", default=[0, 2, 4], help="0 is one process (default: 0 2 4)")
    parser.add_argument("--folder", type=Path, help="where the files are written, and removed (default: $TMPDIR)")
    args = parser.parse_args(words)
    if not args.gigabytes * 2**30 > 2 * TINY * ROW:
        parser.error(f"--gigabytes must be more than {2 * TINY * ROW / 2**30:.3f}, but got {args.gigabytes:g}")
    free = shutil.disk_usage(args.folder or tempfile.gettempdir()).free
    if free < 1.1 * args.gigabytes * 2**30:
        parser.error(f"{args.gigabytes:g} GB and a tenth must be free on the disk, but there are {free / 2**30:.1f}")
    return args


def main(words: list[str] | None = None) -> int:
    console = Console(stderr=True)
    try:
        args = parse(words)
        with tempfile.TemporaryDirectory(prefix="fedmbo-memory-", dir=args.folder) as name:
            folder = Path(name)
            files = {"tiny": TINY, "large": round(args.gigabytes * 2**30 / ROW)}
            for each, rows in files.items():
                write_rows(folder / f"{each}.npz", rows)
            size, peaks = (folder / "large.npz").stat().st_size, dict[int, tuple[Peak, Peak]]()
            for actors in args.actors:
                with console.status(f"{actors} actors" if actors else "in one process"):
                    tiny, large = (
                        measured(folder / f"{each}.npz", actors, folder / f"{each}{actors}") for each in files
                    )
                peaks[actors] = tiny, large
    except ConfigError as error:
        return complain(error, 2)
    except RunFailed as error:
        return complain(error, 1)
    Console(width=None if sys.stdout.isatty() else 120).print(report(size, peaks))
    worst = max(cost(*both) / size for both in peaks.values())
    print(f"at most {worst:.2f} times the file's size, {'no ' if worst <= ALLOWED else ''}more than {ALLOWED}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
