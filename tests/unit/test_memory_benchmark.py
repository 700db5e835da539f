"""What benchmarks.memory counts, and the file that it writes."""

import os
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
    before = pss(os.getpid())
    used = np.ones(2**25, dtype=np.uint8)
    after = pss(os.getpid())
    assert all(0.9 * used.nbytes < b - a < 1.3 * used.nbytes for a, b in zip(before, after, strict=True))
    assert pss(2**22 + 1) == (0, 0)  # no process has such a number


@pytest.mark.parametrize(("size", "said"), [("0", "--gigabytes must be more than 0.008"), ("1e9", "must be free")])
def test_a_size_that_is_not_possible_is_one_line(size: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--gigabytes", size]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
