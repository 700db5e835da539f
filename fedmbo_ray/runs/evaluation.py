"""What a record says about the point that a run has reached."""

import math
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.errors import ConfigError, choices
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.methods.base import own_figures
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.oracles import losses
from fedmbo_ray.runs.bilevel import ExactFigures, cosine
from fedmbo_ray.runs.state import State

Figures = dict[str, float]


class Evaluation:
    """The figures of points of one task."""

    def __init__(self, config: RunConfig, task: Task) -> None:
        self.config, self.task = config, task
        if config.record.exact_every is not None and not task.data.num_samples:
            raise ConfigError(
                "needs data of a fixed size, but this problem makes new samples for every draw", "record", "exact_every"
            )

    def figures(self, state: State, round: int) -> Figures:
        """Those of the problem and of the algorithm, and losses where the problem gives none."""
        x, y, algorithm = state["x"], state["y"], self.config.algorithm
        with torch.no_grad():
            own = own_figures(algorithm, state, round)
            exact = self.task.problem.metrics(x, y, self.task.test) | own
            return exact if "lower_loss" in exact else {**self._losses(x, y), **exact}

    @cached_property
    def _exact(self) -> ExactFigures:
        return ExactFigures(self.task)

    def exact(self, state: State, before: Tensor | None) -> Figures:
        """Φ at x, and how the step to it from the x before compares with −∇Φ there."""
        here = self._exact.at(state["x"], state["y"])
        found = {"phi": here.phi, "implicit_share": here.implicit_share}
        if before is not None:
            there = self._exact.at(before, here.y)
            found["hypergradient_cosine"] = cosine(before - state["x"], there.gradient)
        return found

    def averaged(self, state: State) -> Figures:
        """The figures whose means over rounds are recorded, too."""
        names = self.config.record.averaged
        if not names:
            return {}
        with torch.no_grad():
            now = self.task.problem.metrics(state["x"], state["y"], self.task.test)
        unknown = next((name for name in names if name not in now), None)
        if unknown is not None:
            raise ConfigError(f"unknown figure {unknown!r}; {choices(unknown, list(now))}", "record", "averaged")
        return {name: now[name] for name in names}

    def _losses(self, x: Tensor, y: Tensor) -> Figures:
        """Mean losses on the same samples at every record: equally many of each client, of 1000 clients at most."""
        clients = np.arange(self.task.data.num_clients)
        rng = stream(self.config.seed, "evaluation")
        if len(clients) > 1000:
            clients = rng.choice(len(clients), size=1000, replace=False)
        size = math.ceil(self.config.record.loss_samples / len(clients))
        seeds, cpu = rng.integers(0, 2**64, size=(2, len(clients)), dtype=np.uint64), torch.device("cpu")
        train = self.task.data.draw(clients, seeds[0], Draw("train", size), cpu)
        validation = self.task.data.draw(clients, seeds[1], Draw("validation", size), cpu)
        problem = self.task.problem
        if y.dim() == 2:  # a row for each client
            return {
                "lower_loss": float(losses(problem.lower, problem, x, y[clients], train).mean()),
                "upper_loss": float(losses(problem.upper, problem, x, y[clients], validation).mean()),
            }
        return {
            "lower_loss": float(problem.lower(x, y, train.merged())),
            "upper_loss": float(problem.upper(x, y, validation.merged())),
        }


def running_means(sums: Figures, rounds: int) -> Figures:
    """Of figures over the points of all rounds so far, that of the record not among them."""
    return {f"mean_{name}": total / rounds if rounds else math.nan for name, total in sums.items()}


def jsonable(figures: Figures) -> dict[str, float | None]:
    """JSON knows no nan: None stands for what is not finite."""
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}
