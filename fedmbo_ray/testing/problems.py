"""The contract of problems and partitions, and whether a config learns."""

import math
from collections.abc import Mapping

import numpy as np
import torch

from fedmbo_ray.api.experiment import run_experiment
from fedmbo_ray.api.run import Run
from fedmbo_ray.core.components import construct
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.datasets import data_root, load_dataset
from fedmbo_ray.data.partitions import PARTITIONS, Partition
from fedmbo_ray.problems import PROBLEMS, makes_own_data
from fedmbo_ray.problems.figures import metrics_of
from fedmbo_ray.runs.build import build_task, require_rows
from fedmbo_ray.testing.small import AROUND, DIGITS, after, component, require, same_seed_same_bits, small_config


def check_problem(name: str, data: Mapping[str, object] = DIGITS, **parameters: object) -> None:
    """Check a problem on the embedded digits, on other data that suit it, or on its own data.

    Args:
        name: its name in a config; its package must be installed.
        parameters: its parameters; those without a default get a typical value.

    Raises:
        AssertionError: if its losses are random, a client's result depends on the others in its block, or a figure
            is not finite.
        ConfigError: if it has no second derivatives.

    Example:
        >>> check_problem("quadratic", upper_dim=3, lower_dim=2)
    """
    values = component(PROBLEMS, name, parameters)
    config = small_config(AROUND, problem=values, **({} if makes_own_data(values) else {"data": data}))
    same_seed_same_bits(config)
    alone, together = after(config, {"block_size": 1}), after(config, {"block_size": 6})
    for key in alone:
        close = torch.allclose(alone[key], together[key], rtol=1e-3, atol=1e-4)
        require(close, f"a client's result must not depend on the others in its block, but {key} does")
    task = build_task(config)
    figures = metrics_of(task.problem, *task.problem.init(stream(0, "init")), task.test)
    for key, value in figures.items():
        require(math.isfinite(value), f"figures must be finite, but {key} is {value!r}")


def check_partition(name: str, **parameters: object) -> None:
    """Check a partition of the embedded digits over 20 clients.

    Args:
        name: its name in a config; its package must be installed.
        parameters: its parameters; those without a default get a typical value.

    Raises:
        AssertionError: if the same seed gives other rows, or the labels are written to.
        ConfigError: if a row is given twice, or is not in the data set.

    Example:
        >>> check_partition("dirichlet", alpha=1.0)
    """
    values = component(PARTITIONS, name, parameters)
    partition: Partition = construct(PARTITIONS[name], {key: value for key, value in values.items() if key != "name"})
    data = load_dataset("digits", data_root())
    before = data.train_targets.copy()
    first, again = (partition.split(data, 20, stream(0, "partition")) for _ in range(2))
    require_rows(first, 20, len(before))
    require(all(map(np.array_equal, first, again)), "the same seed must give the same rows")
    require(np.array_equal(data.train_targets, before), "the labels must not be written to")


def check_learns(*overrides: str, rounds: int = 40) -> Run:
    """Check that the default config learns with some changes.

    Args:
        overrides: the changes, written as on the command line.
        rounds: the number of rounds.

    Returns:
        The finished run.

    Raises:
        AssertionError: if the run diverges, or its upper loss does not fall by a fifth.

    Example:
        >>> check_learns("algorithm.hypergradient=phe_sum").status
        'finished'
    """
    run = run_experiment(None, *overrides, rounds=rounds, progress=False)
    require(run.status == "finished", f"the run must finish, but it is {run.status}")
    before, now = run.records["upper_loss"].iloc[0], run.records["upper_loss"].iloc[-1]
    require(now < 0.8 * before, f"upper_loss must fall by a fifth in {rounds} rounds, but went from {before} to {now}")
    return run
