"""Small tasks, federations and sweeps for tests."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.components import construct
from fedmbo_ray.federation.clients import Federation
from fedmbo_ray.problems.base import Task
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.loop import run
from fedmbo_ray.sweeps.folder import SweepFolder, numbered
from fedmbo_ray.sweeps.proof import prove
from fedmbo_ray.sweeps.ranking import finish
from fedmbo_ray.sweeps.rungs import going_on, has_come_to
from fedmbo_ray.sweeps.schedulers import NO_END
from fedmbo_ray.sweeps.schema import SweepPlan

DIGITS = {"name": "digits", "partition": {"name": "by_digits", "digits": 2}}

TINY_PROBLEMS: dict[str, dict[str, Any]] = {
    "quadratic": {"problem": {"name": "quadratic"}},
    "quadratic_nonconvex": {"problem": {"name": "quadratic", "nonconvexity": 1.5}},
    "hyper_representation": {
        "problem": {"name": "hyper_representation", "backbone": {"name": "mlp", "width": 8}, "dtype": "float64"},
        "data": DIGITS,
    },
    "hyper_representation_cnn": {
        "problem": {
            "name": "hyper_representation",
            "backbone": {"name": "cnn", "width": 2},
            "dtype": "float64",
        },
        "data": DIGITS,
    },
    "personal_heads": {
        "problem": {"name": "personal_heads", "backbone": {"name": "mlp", "width": 8}, "dtype": "float64"},
        "data": DIGITS,
    },
    "hyper_cleaning": {
        "problem": {"name": "hyper_cleaning", "dtype": "float64"},
        "data": {**DIGITS, "label_noise": 0.3},
    },
    "ridge_head": {
        "problem": {"name": "ridge_head", "backbone": {"name": "mlp", "width": 5}, "dtype": "float64"},
        "data": {"name": "small_data:numbers", "partition": "iid"},
    },
    "loss_tuning": {
        "problem": {"name": "loss_tuning", "dtype": "float64"},
        "data": {"name": "digits", "partition": "iid", "imbalance": 10},
    },
    "regularization": {"problem": {"name": "regularization", "dtype": "float64"}, "data": DIGITS},
    "regularization_per_class": {
        "problem": {"name": "regularization", "per": "class", "dtype": "float64"},
        "data": DIGITS,
    },
    "fair_reweighting": {
        "problem": {"name": "fair_reweighting", "dtype": "float64"},
        "data": {"name": "small_data:groups", "partition": "iid"},
    },
    "fair_reweighting_cells": {
        "problem": {
            "name": "fair_reweighting",
            "cells": "groups_and_labels",
            "compared": "within_labels",
            "dtype": "float64",
        },
        "data": {"name": "small_data:groups", "partition": "iid", "weights": "by_size"},
    },
    "robust_clients": {"problem": {"name": "robust_clients", "dtype": "float64"}, "data": DIGITS},
    "auc": {"problem": {"name": "auc", "dtype": "float64"}, "data": DIGITS},
    "risk_averse": {"problem": {"name": "risk_averse", "dtype": "float64"}, "data": DIGITS},
}

ALGORITHM: dict[str, Any] = {
    "name": "double_loop",
    "step_size": 0.05,
    "smoothness": 20,
    "lower": {"name": "minibatch_sgd", "steps": 2, "step_size": 0.2, "batch_size": 4},
    "hypergradient": {"name": "phe", "terms": 3, "batch_size": 4},
}


def tiny_config(which: str = "quadratic", **changes: Any) -> RunConfig:
    """A config of 20 clients and 6 rounds on a tiny problem."""
    clients = {"num_clients": 20, "cohort_size": 6, "block_size": 4}
    fields = {"rounds": 6, "clients": clients, "algorithm": ALGORITHM, **TINY_PROBLEMS[which]}
    return construct(RunConfig, {**fields, **changes})


def tiny_task(problem: str) -> Task:
    return build_task(tiny_config(problem))


def federation(task: Task, cohort_size: int, **changes: Any) -> Federation:
    """The task's clients in this process."""
    backend = InProcess(task)
    defaults: dict[str, Any] = {"rounds": 100, "block_size": 64, "data": task.data, "assumes": "anything"}
    return Federation(**{"backend": backend, "cohort_size": cohort_size, **defaults, **changes})


def log_slope(sizes: list[int], values: list[float]) -> float:
    """The slope of log(values) on log(sizes)."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def made_record(round: int, **figures: object) -> dict[str, object]:
    """A record with everything that each has."""
    used = dict.fromkeys(("communications", "samples", "floats_up", "floats_down"), 0)
    return {"round": round, **used, "wall_seconds": 0.0, **figures}


def reference(sweep: SweepPlan, path: Path) -> SweepFolder:
    """A sweep's folder as undisturbed trials leave it, made in this process and without Ray."""
    folder, points = SweepFolder(path), sweep.points() or []
    with folder.claimed(sweep.plain()):
        prove(sweep, folder)
        numbers, until = going_on(sweep, folder, points)
        while numbers:
            for number in numbers:
                trial = folder.trial(numbered(number))
                trial.begin(points[number])
                for seed in range(sweep.tune.seeds):
                    with closing(run(sweep.config(points[number], seed), trial.run(seed), resume=True)) as records:
                        assert any(has_come_to(until or NO_END, record) for record in records)
            numbers, until = going_on(sweep, folder, points)
    finish(sweep, folder)
    return folder
