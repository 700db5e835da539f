"""A round costs the same with a hundred clients and with a million."""

import statistics
import time

import psutil
import pytest
from tasks import tiny_config

from fedmbo_ray.building import build_federation, build_task
from fedmbo_ray.experiment import in_process
from fedmbo_ray.problems import population
from fedmbo_ray.rng import stream


def test_rounds_do_not_get_slower_or_larger_with_m(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "MOST_STORED", 0)  # few clients would be stored, and faster for it
    sizes, seconds, memory = (100, 1_000_000), {}, {}
    runs = {}
    for m in sizes:
        before = psutil.Process().memory_info().rss
        config = tiny_config("quadratic", clients={"num_clients": m, "cohort_size": 10})
        task = build_task(config)
        state = config.algorithm.init(*task.problem.init(stream(0)), task.data.num_clients)
        runs[m] = [config.algorithm, build_federation(config, task, in_process(task)), state]
        seconds[m] = []
        task.problem.metrics(state["x"], state["y"], None)
        memory[m] = psutil.Process().memory_info().rss - before
    for k in range(300):  # interleaved, so that whatever else the machine does hits both alike
        for m in sizes:
            algorithm, fed, state = runs[m]
            start = time.perf_counter()
            runs[m][2] = algorithm.round(fed.clients(stream(0, k), k), state)
            seconds[m].append(time.perf_counter() - start)
    ratio = statistics.median(seconds[1_000_000]) / statistics.median(seconds[100])
    print(f"a round at m = 10⁶ takes {ratio:.3f} times that at m = 100; memory {memory}")
    assert ratio < 1.1
    assert memory[1_000_000] - memory[100] < 200e6
