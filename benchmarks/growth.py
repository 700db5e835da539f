"""FedMBO at the paper's setting with one number changed: n, m, the width of the network, the number of actors."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.arms import Frame
from benchmarks.tasks import Setting, pool
from benchmarks.timing import family, megabytes
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.array_clients import Rows
from fedmbo_ray.problems.base import Task
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.driver import start_ray
from fedmbo_ray.runs.loop import in_process

CURVES: dict[str, tuple[int, ...]] = {
    "n": (10, 30, 100, 300, 1000),  # clients per communication
    "m": (10**2, 10**3, 10**4, 10**5, 10**6),  # clients
    "width": (50, 200, 1000, 2000),  # p = 785·width on MNIST
    "actors": (1, 2, 3, 4),  # with 40 clients per communication
}
ROWS = 10  # of each split that a client owns, where there are more clients than a data set has rows for


def arm(setting: Setting, curve: str, value: int) -> Frame:
    if curve == "n":
        config = setting.config(
            "clients.block_size=10",
            f"clients.cohort_size={value}",
            f"clients.num_clients={max(value, 100)}",
            "data.partition=iid",
        )
        task = build_task(config)
        return Frame(config, task, in_process(task))
    if curve == "width":
        config = setting.config("clients.block_size=10", f"problem.backbone.width={value}")
        task = build_task(config)
        return Frame(config, task, in_process(task))
    if curve == "m":
        config = setting.config("clients.block_size=10")
        task = crowd(build_task(config), value)
        return Frame(config, task, in_process(task))
    config = setting.config("clients.cohort_size=40")
    task = build_task(config)
    start_ray(config.clients.actors * config.clients.cpus_per_actor)
    return Frame(config, task, pool(task, value))


def crowd(task: Task, m: int) -> Task:
    """The task with m clients that own a few rows each; rows belong to many clients where m is large."""
    data: Any = task.data
    rng = stream(0, "crowd")
    start, size = ROWS * np.arange(m), np.full(m, ROWS)
    splits = {
        split: Rows(rows.order[rng.integers(len(rows.order), size=ROWS * m)], start, size)
        for split, rows in data.splits.items()
    }
    return task._replace(data=replace(data, splits=splits))


def memory(setting: Setting, curve: str, value: int) -> float:
    """Megabytes of all processes after two rounds, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.growth", setting.data, curve, str(value)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def peak_megabytes() -> float:
    """Of this process since it began; what getrusage says may be its parent's."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    data, curve, value = sys.argv[1:]
    torch.set_num_threads(1)
    frame = arm(Setting(data), curve, int(value))
    frame.run(2)
    if curve == "actors":
        clients = [process.pid for process in family() if "ClientActor" in " ".join(process.cmdline())]
        print(megabytes(clients))
    else:
        print(peak_megabytes())
    frame.close()


if __name__ == "__main__":
    main()
