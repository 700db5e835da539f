"""python -m benchmarks.backends: FedMBO's rounds in this process and on client actors, side by side.

The paper's setting (m=100, n=10, S=64, T=5, N=5, width 200, MNIST) with one torch thread per process. Rounds are
interleaved and their medians compared, so that whatever else the machine does hits all alike.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from fedmbo_ray.backends.ray_actors import RayActors
from fedmbo_ray.building import build_federation, build_task
from fedmbo_ray.driver import start_ray
from fedmbo_ray.experiment import in_process
from fedmbo_ray.loading import read_config
from fedmbo_ray.rng import stream


def measure(arms: dict[str, Any], config: Any, task: Any, rounds: int) -> dict[str, float]:
    """Median seconds per round of each backend; all must agree on every bit."""
    federations = {name: build_federation(config, task, backend) for name, backend in arms.items()}
    states = {
        name: config.algorithm.init(*task.problem.init(stream(0, "init")), task.data.num_clients) for name in arms
    }
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for k in range(rounds):
        for name, federation in federations.items():
            start = time.perf_counter()
            states[name] = config.algorithm.round(federation.clients(stream(0, "round", k), k), states[name])
            seconds[name].append(time.perf_counter() - start)
    first, *others = states.values()
    if not all(torch.equal(first["x"], other["x"]) for other in others):
        raise AssertionError("the backends disagree")
    return {name: statistics.median(each[rounds // 10 :]) for name, each in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backends", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--config", type=Path, default=Path("tune_configs/mnist.yaml"))
    parser.add_argument("overrides", nargs="*", metavar="key.path=value")
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = read_config(args.config, args.overrides)
    task = build_task(config)
    start_ray(config.clients)
    pool = RayActors(task.problem, task.data, args.actors, cpus=0.5)
    medians = measure({"in_process": in_process(task), "ray": pool}, config, task, args.rounds)
    pool.close()
    for name, seconds in medians.items():
        print(f"{name:12s} {1000 * seconds:7.1f} ms/round  {1 / seconds:6.1f} rounds/s")
    print(f"ray with {args.actors} actors is {medians['in_process'] / medians['ray']:.2f} x in_process (same bits)")


if __name__ == "__main__":
    main()
