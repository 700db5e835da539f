"""What a record says about the point that a run has reached."""

import math
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.errors import ConfigError, choices
from fedmbo_ray.core.rng import Seeds, stream
from fedmbo_ray.data.batches import ClientIds, Draw
from fedmbo_ray.federation.draws import PartOfTest
from fedmbo_ray.federation.execution import Backend, Block, BlockKernel, Job
from fedmbo_ray.federation.sent import VersionNumbers
from fedmbo_ray.methods.base import own_figures
from fedmbo_ray.problems.base import Task, is_predicting
from fedmbo_ray.problems.figures import PART, count_parts, metrics_of, predicted, summed_losses
from fedmbo_ray.runs.bilevel import ExactFigures, cosine
from fedmbo_ray.runs.state import RunPosition, State

Figures = dict[str, float]

EXACT = ("phi", "implicit_share", "hypergradient_cosine")  # they are solved on all data, so only some records have them


class Evaluation:
    """Computes the figures of points of one task, by the backend; the meter counts none of this."""

    def __init__(self, config: RunConfig, task: Task, backend: Backend) -> None:
        self.config, self.task, self.backend = config, task, backend
        self.versions, self.last = VersionNumbers(most=2), ((0, 0), Figures())  # the last point, and its figures
        if config.record.exact_every is not None and not task.data.num_samples:
            raise ConfigError(
                "needs data of a fixed size, but this problem makes new samples for every draw", "record", "exact_every"
            )

    def of_record(self, place: RunPosition, last: bool) -> Figures:
        """All figures of the record at a position; `last`: of a run's last record, which always has exact figures."""
        figures = self.figures(place.state, place.round) | running_means(place.sums, place.round)
        every = self.config.record.exact_every
        if every is not None and (place.round % every == 0 or last):
            figures |= self.exact(place.state, place.before)
        return figures

    def figures(self, state: State, round: int) -> Figures:
        """The figures of the problem and of the algorithm, and the losses if the problem does not give them."""
        x, y, algorithm = state["x"], state["y"], self.config.algorithm
        with torch.no_grad():
            own = own_figures(algorithm, state, round)
            exact = self._metrics(x, y) | own
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
            now = self._metrics(state["x"], state["y"])
        unknown = next((name for name in names if name not in now), None)
        if unknown is not None:
            raise ConfigError(f"unknown figure {unknown!r}; {choices(unknown, list(now))}", "record", "averaged")
        return {name: now[name] for name in names}

    def _metrics(self, x: Tensor, y: Tensor) -> Figures:
        """The figures of the problem; those of the last point are kept, so that they are computed once."""
        point = self.versions.of(x), self.versions.of(y)
        if self.last[0] != point:
            self.last = point, self._measured(x, y)
        return self.last[1]

    def _measured(self, x: Tensor, y: Tensor) -> Figures:
        problem, _, test = self.task
        if not is_predicting(problem):
            return metrics_of(problem, x, y, test)
        assert test is not None
        job = Job(BlockKernel(predicted), (x, y), PartOfTest(), summed=False)
        blocks = [Block(np.array([number]), np.zeros(1, np.uint64), ()) for number in range(count_parts(test))]
        predictions = [part for (part,) in self.backend.run(job, blocks).rows]
        return problem.figures(x, y, torch.cat(predictions), test)

    @cached_property
    def _sampled(self) -> tuple[ClientIds, Seeds, int]:
        """For the losses of all records: at most 1000 clients, their seeds, and how many samples each client draws."""
        clients = np.arange(self.task.data.num_clients)
        rng = stream(self.config.seed, "evaluation")
        if len(clients) > 1000:
            clients = rng.choice(len(clients), size=1000, replace=False)
        size = math.ceil(self.config.record.loss_samples / len(clients))
        train, validation = rng.integers(0, 2**64, size=(2, len(clients)), dtype=np.uint64)
        return clients, np.stack([validation, train]), size

    def _losses(self, x: Tensor, y: Tensor) -> Figures:
        """Mean losses on the same samples at every record, with the same number for each client."""
        clients, seeds, size = self._sampled
        draws, width = (Draw("validation", size), Draw("train", size)), max(1, PART // (2 * size))
        shared, each = ((x, y), ()) if y.dim() == 1 else ((x,), (y[clients],))
        cuts = [slice(start, start + width) for start in range(0, len(clients), width)]
        blocks = [Block(clients[cut], seeds[:, cut], tuple(rows[cut] for rows in each)) for cut in cuts]
        job = Job(BlockKernel(summed_losses), shared, draws, summed=True)
        upper, lower = (float(total / len(clients)) for total in self.backend.run(job, blocks).sums)
        return {"lower_loss": lower, "upper_loss": upper}


def running_means(sums: Figures, rounds: int) -> Figures:
    """The means of figures over the points of all rounds so far, without the point of the record."""
    return {f"mean_{name}": total / rounds if rounds else math.nan for name, total in sums.items()}


def jsonable(figures: Figures) -> dict[str, float | None]:
    """JSON has no nan: None stands for numbers that are not finite."""
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}
