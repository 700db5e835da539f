"""What benchmarks.memory counts, and the file that it writes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.memory import COLUMNS, Look, Peak, cost, main, pss, write_rows
from benchmarks.page_cache import PageCache
from fedmbo_ray.data.sources import Source, read_source


def test_the_file_is_one_of_labelled_rows(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.npz", 200)
    found = np.load(tmp_path / "rows.npz")
    assert (found["inputs"].shape, found["inputs"].dtype) == ((200, COLUMNS), np.float32)
    assert read_source(Source("file", tmp_path / "rows.npz")).num_classes == 10


def test_the_cache_holds_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(10 * 4096 + 1))
    with PageCache(tmp_path / "a") as cache:
        assert cache.held() == 11 * 4096


def test_the_peak_is_that_of_one_moment() -> None:
    large = Peak()
    for look in (Look(50, 40, 0), Look(30, 20, 100), Look(35, 25, 90)):
        large = large.with_look(look)
    assert large == Peak(50, Look(30, 20, 100))
    assert cost(Peak(45, Look(45, 15, 3)), large) == 20 + 100 - 15


def test_memory_that_is_used_counts() -> None:
    """In a process that nobody shares pages with and that does nothing else."""
    size = 2**25
    waits = f"print(flush=True); input(); used = bytearray(b'1') * {size}; print(flush=True); input()"
    line = [sys.executable, "-c", waits]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        before = pss(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        after = pss(process.pid)
        process.communicate(b"\n")
    own = after[1] - before[1]
    assert 0.9 * size < own < 1.1 * size
    assert after[0] - before[0] > 0.5 * size  # with libraries, which count less once others have them open as well
    assert pss(2**22 + 1) == (0, 0)  # no process has such a number


@pytest.mark.parametrize(("size", "said"), [("0", "--gigabytes must be more than 0.008"), ("1e9", "must be free")])
def test_a_size_that_is_not_possible_is_one_line(size: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--gigabytes", size]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
