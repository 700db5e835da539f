"""A round does the same work with a hundred clients and with a million."""

import sys
import tracemalloc

import psutil
import pytest
from tasks import tiny_config

from fedmbo_ray.core.rng import stream
from fedmbo_ray.problems import population
from fedmbo_ray.runs.build import build_federation, build_task
from fedmbo_ray.runs.loop import in_process

ROUNDS = 20


def work(m: int) -> tuple[int, int, int]:
    """Of some rounds: calls of functions, the most bytes that they held at once, and bytes held by the task itself."""
    before = psutil.Process().memory_info().rss
    config = tiny_config("quadratic", clients={"num_clients": m, "cohort_size": 10})
    task = build_task(config)
    state = config.algorithm.init(*task.problem.init(stream(0)), task.data.num_clients)
    task.problem.metrics(state["x"], state["y"], None)
    held, fed, calls = psutil.Process().memory_info().rss - before, build_federation(config, task, in_process(task)), 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    tracemalloc.start()
    sys.setprofile(count)
    try:
        for k in range(ROUNDS):
            state = config.algorithm.round(fed.clients(stream(0, k), k), state)
    finally:
        sys.setprofile(None)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return calls, peak, held


def test_rounds_do_not_get_slower_or_larger_with_m(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array with an entry for every client would take 8 MB; a loop over them a million calls."""
    monkeypatch.setattr(population, "MOST_STORED", 0)  # few clients would be stored
    work(100)  # what is made once is made now
    (few, small, _), (many, large, held) = work(100), work(1_000_000)
    print(f"{few / ROUNDS:.0f} and {many / ROUNDS:.0f} calls a round, {small} and {large} bytes; held {held}")
    assert many < 1.1 * few
    assert large < small + 100_000
    assert held < 200e6
