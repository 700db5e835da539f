"""What records take: next to the matrix products that they need, and as a share of a run's time."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from benchmarks.arms import Frame
from benchmarks.tasks import Setting, pool
from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.config.shipped import shipped_configs
from fedmbo_ray.core.cards import card_of
from fedmbo_ray.core.components import parts_of
from fedmbo_ray.core.io import SHIPPED, read_yaml
from fedmbo_ray.core.rng import stream
from fedmbo_ray.federation.execution import Backend
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.figures import PART
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.evaluation import Evaluation
from fedmbo_ray.runs.loop import in_process
from fedmbo_ray.studies.questions import METHODS
from fedmbo_ray.sweeps.schema import read_sweep


class Records:
    """The figures of one record after the other, each of a point that is new."""

    def __init__(self, config: RunConfig, task: Task, backend: Backend) -> None:
        self.evaluation = Evaluation(config, task, backend)
        x, y = task.problem.init(stream(config.seed, "init"))
        self.state = config.algorithm.init(x, y, task.data.num_clients)
        self.made, self.last = 0, dict[str, float]()

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            new = {name: self.state[name].clone() for name in ("x", "y")}
            self.last = self.evaluation.figures(self.state | new, 0)
        self.made += rounds

    def figures(self) -> dict[str, float]:
        return {"rounds": self.made, **self.last}

    def close(self) -> None:
        self.evaluation.backend.close()


class RecordProducts:
    """The matrix products of a record and nothing else: an MLP's on all test rows and on the samples of both losses."""

    def __init__(self, config: RunConfig, task: Task) -> None:
        problem: Any = task.problem
        assert task.test is not None
        inputs, tested, drawn = task.test.inputs[0].numel(), len(task.test.targets), 2 * config.record.loss_samples
        self.inputs = [*torch.randn(tested, inputs).split(PART), *torch.randn(drawn, inputs).split(PART // 2)]
        self.first, self.second = torch.randn(problem.num_features, inputs), torch.randn(10, problem.num_features)
        self.hidden, self.logits, self.made = torch.empty(PART, problem.num_features), torch.empty(PART, 10), 0

    def run(self, rounds: int) -> None:
        for part in rounds * self.inputs:
            hidden = torch.mm(part, self.first.T, out=self.hidden[: len(part)])
            torch.mm(hidden, self.second.T, out=self.logits[: len(part)])
        self.made += rounds

    def figures(self) -> dict[str, float]:
        return {"rounds": self.made}

    def close(self) -> None: ...


def record(setting: Setting) -> dict[str, Callable[[], Any]]:
    """A record of FedMBO at the paper's setting."""
    config = setting.config()
    task = build_task(config)
    return {
        "in_process": lambda: Records(config, task, in_process(task)),
        "ray, 2 actors": lambda: Records(config, task, pool(task, 2)),
        "ray, 1 actor": lambda: Records(config, task, pool(task, 1)),
        "products alone": lambda: RecordProducts(config, task),
    }


class Share(NamedTuple):
    """What part of a run's time its records take, in one process."""

    config: str
    run: str  # which of the config's runs
    every: int  # rounds between two records
    round_seconds: float
    record_seconds: float

    @property
    def share(self) -> float:
        return self.record_seconds / (self.record_seconds + self.every * self.round_seconds)


def shares(file: str, setting: Setting, seconds: float) -> list[Share]:
    """Of the runs of a shipped config; rounds and records are measured for so many seconds each."""
    found = []
    for words, config in kinds(file, setting.data).items():
        config = config.model_copy(update={"rounds": setting.rounds, "budget": None})
        task = build_task(config)
        arms = (Frame(config, task, in_process(task)), Records(config, task, in_process(task)))
        found.append(Share(file, words, config.record.every, *(seconds_of(arm, seconds) for arm in arms)))
    return found


def seconds_of(arm: Frame | Records, seconds: float) -> float:
    """Seconds of one round, or of one record; the mean, as rounds differ where depths are random."""
    arm.run(2)
    start, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < seconds or not count:
        arm.run(1)
        count += 1
    return spent / count


def shipped() -> list[str]:
    """The names of mnist.yaml and of the studies' sweeps."""
    return ["mnist", *(name for name in shipped_configs() if name.startswith(("studies/", "methods/")))]


def kinds(file: str, data: str) -> dict[str, RunConfig]:
    """The runs of a config that take different times, by what tells them apart."""
    if file == "mnist":
        return {"": read_config(SHIPPED / "mnist.yaml", [f"data.name={data}"])}
    if file == "studies/methods/comparison":  # the study puts in the methods
        every = read_yaml(SHIPPED / f"{file}.yaml")["record"]["every"]["zip"]
        return {
            method: config.model_copy(update={"record": config.record.model_copy(update={"every": k})})
            for method, k in zip(METHODS, every, strict=True)
            for config in list(kinds(f"methods/{method}", data).values())[:1]
        }
    fields = read_yaml(SHIPPED / f"{file}.yaml")
    sweep = read_sweep(SHIPPED / f"{file}.yaml", [(["data", "name"], data)] if "data" in fields else [])
    found = dict[str, RunConfig]()
    for config in map(sweep.config, sweep.examples()):
        parts = [type(part).__name__ for _, part in parts_of(config.algorithm) if card_of(part) is not None]
        found.setdefault(f"n = {config.clients.cohort_size}, {', '.join(parts)}", config)
    return found
