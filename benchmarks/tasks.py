"""The tasks, and who does them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.actor_per_client import ActorPerClient
from benchmarks.arms import Bare, FedSGD, Frame
from benchmarks.fednest_plain import PlainFedNest
from benchmarks.fused import DerivedFedMBO, FusedFedMBO, FusedFedSGD, Model, Products
from benchmarks.peers import Peer, environment, export
from fedmbo_ray.backends.ray.pool import RayActors
from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.problems.base import Task
from fedmbo_ray.runs.build import build_task, federate
from fedmbo_ray.runs.loop import in_process

STEP_SIZE, BATCH = 0.1, 64  # of the one-step task


class Setting(NamedTuple):
    """The paper's: 100 clients, 10 per communication, batches of 64, T = N = 5, an MLP of width 200."""

    data: str = "mnist"
    rounds: int = 10**6

    def config(self, *overrides: str) -> RunConfig:
        file = Path(__file__).parent.parent / "tune_configs" / "mnist_paper.yaml"
        return read_config(file, [f"data.name={self.data}", f"rounds={self.rounds}", *overrides])


def pool(task: Task, actors: int) -> RayActors:
    """Pools of several arms live side by side and take turns, so that none reserves a core for itself."""
    return RayActors(task, actors, cpus=0.01)


def model(task: Task) -> Model:
    data: Any = task.data
    problem: Any = task.problem
    images = torch.from_numpy(data.inputs).flatten(1)
    return Model(images, torch.from_numpy(data.targets), data.splits, problem.num_features, problem.num_classes)


def one_step(setting: Setting, folder: Path, environments: Path) -> dict[str, Callable[[], Any]]:
    """One step of SGD by 10 of 100 clients, and the mean of their weights; every framework can do that."""
    config, whole = setting.config(), setting.config("clients.block_size=10")
    task, n = build_task(config), config.clients.cohort_size
    algorithm = FedSGD(STEP_SIZE, BATCH)
    regularization = config.problem.regularization  # type: ignore[attr-defined]

    def peer(name: str) -> Peer:
        numbers = {"n": n, "batch": BATCH, "step_size": STEP_SIZE, "regularization": regularization}
        path = folder / f"{name}.npz"
        export(task, config.seed, path, **numbers)
        return Peer(name, environment(name, environments), path)

    fused = FusedFedSGD(model(task), config.seed, 100, n, BATCH, STEP_SIZE, regularization)
    return {
        "in_process": lambda: Frame(whole, task, in_process(task), algorithm),
        "ray, 2 actors": lambda: Frame(config, task, pool(task, 2), algorithm),
        "ray, 1 actor": lambda: Frame(config, task, pool(task, 1), algorithm),
        "fused by hand": lambda: Bare(config, task, fused),
        "actor per client": lambda: Bare(config, task, ActorPerClient(task, config.seed, n, BATCH, STEP_SIZE)),
        "pfl": lambda: peer("pfl"),
        "flower": lambda: peer("flower"),
    }


def fedmbo(setting: Setting) -> dict[str, Callable[[], Any]]:
    """FedMBO at the paper's setting."""
    config, whole = setting.config(), setting.config("clients.block_size=10")
    task = build_task(config)
    algorithm: Any = config.algorithm
    numbers = {
        "seed": config.seed,
        "m": config.clients.num_clients,
        "n": config.clients.cohort_size,
        "S": algorithm.lower.batch_size,
        "T": algorithm.lower.steps,
        "N": algorithm.hypergradient.terms,
        "alpha": algorithm.step_size.value,
        "beta": algorithm.lower.step_size.value,
        "ell": algorithm.smoothness.value,
        "regularization": config.problem.regularization,  # type: ignore[attr-defined]
    }
    return {
        "in_process": lambda: Frame(whole, task, in_process(task)),
        "in_process, blocks of 5": lambda: Frame(config, task, in_process(task)),
        "ray, 2 actors": lambda: Frame(config, task, pool(task, 2)),
        "ray, 1 actor": lambda: Frame(config, task, pool(task, 1)),
        "fused by hand": lambda: Bare(config, task, FusedFedMBO(model(task), **numbers)),
        "fused, derived by hand": lambda: Bare(config, task, DerivedFedMBO(model(task), **numbers)),
        "products alone": lambda: Bare(config, task, Products(model(task), **numbers)),
    }


def larger(setting: Setting, backbone: str) -> dict[str, Callable[[], Any]]:
    """FedMBO with a backbone that has more to compute: what a second core is worth."""
    config = setting.config(f"problem.backbone={backbone}", "algorithm.step_size=0.01")
    task = build_task(config)
    return {
        "in_process": lambda: Frame(config, task, in_process(task)),
        "ray, 2 actors": lambda: Frame(config, task, pool(task, 2)),
        "ray, 1 actor": lambda: Frame(config, task, pool(task, 1)),
    }


def cnn(setting: Setting) -> dict[str, Callable[[], Any]]:
    """A convolutional backbone."""
    return larger(setting, "cnn")


def wide(setting: Setting) -> dict[str, Callable[[], Any]]:
    """An MLP of width 2000."""
    return larger(setting, "{name: mlp, width: 2000}")


def fednest(setting: Setting) -> dict[str, Callable[[], Any]]:
    """SVRG with 40 local steps below, IHGP with N = 5 above."""
    algorithm = [
        "algorithm.lower={name: fedsvrg, steps: 1, local_steps: 40, step_size: 0.05, batch_size: 64}",
        "algorithm.hypergradient={name: ihgp, terms: 5, batch_size: 64}",
    ]
    config = setting.config(*algorithm)
    task = build_task(config)
    problem: Any = task.problem
    chosen: Any = config.algorithm
    plain = PlainFedNest(
        data=federate(config.data, config.seed, config.clients.num_clients).clients,  # type: ignore[arg-type]
        width=problem.num_features,
        classes=problem.num_classes,
        seed=config.seed,
        n=config.clients.cohort_size,
        size=64,
        local_steps=40,
        terms=5,
        alpha=chosen.step_size.value,
        beta=0.05,
        ell=chosen.smoothness.value,
        regularization=problem.regularization,
    )
    return {
        "in_process": lambda: Frame(config, task, in_process(task)),
        "ray, 2 actors": lambda: Frame(config, task, pool(task, 2)),
        "plain loop": lambda: Bare(config, task, plain),
    }
