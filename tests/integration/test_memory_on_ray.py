"""A large file is in memory once per node, in the system's cache: no client actor holds a copy of its own."""

from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tasks import federation

from benchmarks.memory import ROW, TINY, main, pss, write_rows
from benchmarks.page_cache import PageCache
from fedmbo_ray.backends.ray.pool import RayActors
from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data import in_file
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.problems.oracles import grad_y_lower
from fedmbo_ray.runs.build import build_task

ROWS = 64 * 2**20 // ROW
WORDS = ["clients.num_clients=64", "problem.backbone.width=8"]


def test_actors_hold_no_copy_of_a_large_file(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_file, "LARGE", 2 * TINY * ROW)
    write_rows(tmp_path / "tiny.npz", TINY)
    write_rows(tmp_path / "large.npz", ROWS)
    anyway, large = held_by_actors(tmp_path / "tiny.npz"), held_by_actors(tmp_path / "large.npz")
    assert large - anyway < ROWS * ROW / 2  # of both actors
    with PageCache(tmp_path / "large.npz") as cache:
        assert cache.held() > ROWS * ROW / 2  # they have read it


def held_by_actors(path: Path) -> int:
    """What two client actors hold in memory after clients have computed with all their rows."""
    task = build_task(read_config(None, [f"data={{name: file, path: {path}, partition: iid}}", *WORDS]))
    x, y = task.problem.init(stream(0))
    before = actor_processes()
    pool = RayActors(task, actors=2, cpus=0.5)
    try:
        fed = federation(task, 64, backend=pool, block_size=2)
        for number in range(3):
            clients = fed.clients(stream(number))
            clients.mean(grad_y_lower, clients.sample(), x, y, draw=Draw("train", None))
        found = actor_processes() - before
        assert len(found) == 2
        return sum(pss(pid)[1] for pid in found)
    finally:
        pool.close()


def actor_processes() -> set[int]:
    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found |= {process.pid} if "ClientActor" in process.name() else set()
    return found


def test_the_benchmark_adds_up_processes_and_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--gigabytes", "0.03", "--actors", "0", "--folder", str(tmp_path)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "one process" in line)
    tiny, large, more, cached, both = (int(cell) for cell in row.split("│")[2:7])
    assert min(tiny, large) > 50  # Python and torch alone take more
    assert cached == 32
    assert abs(more + cached - both) <= 1
    assert list(tmp_path.iterdir()) == []
