"""Maximisation of the area under the ROC curve, a minimax problem: x = a linear score with two means, y = a number."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor

from fedmbo_ray.core.cards import CODE, Card
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.settings import Positive, settings
from fedmbo_ray.data.array_clients import Federated
from fedmbo_ray.data.batches import Batch
from fedmbo_ray.problems.base import Capabilities, Task, require_classes, require_numbers


@settings
class AUC:
    """min_{w,a,b} max_α of the mean over clients of f_i, x = (w, a, b), y = α; g_i = −f_i.

    f_i = mean_j [(1−p)(s_j − a)²·1₊ + p(s_j − b)²·1₋ + 2(1+α)(p·s_j·1₋ − (1−p)·s_j·1₊)] − p(1−p)α² + (λ/2)‖w‖²

    with the scores s_j = w·input of all rows of client i, 1₊ for rows with the label `positive` and 1₋ for all others,
    and p the share of the positive rows of all clients. At the saddle point this is p(1−p) times the expectation of
    (1 − s + s')² over pairs of a positive row s and another one s', without its constant 1. a and b are then the mean
    scores of the two kinds, and α is b − a. As g = −f, the hypergradient at y*(x) is ∇_x f.
    """

    card: ClassVar[Card] = Card("Ying, Wen, Lyu 2016", CODE)

    positive: Annotated[int, Ge(0)] = 0  # the label of the positive rows
    regularization: Positive = 0.001  # λ
    dtype: Literal["float32", "float64"] = "float32"

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        require_classes(data, "AUC")
        require_numbers(data, "AUC")
        if self.positive >= data.num_classes:
            raise ConfigError(f"must be a label, 0 to {data.num_classes - 1}, but is {self.positive}", "positive")
        dtype, clients = getattr(torch, self.dtype), data.clients.with_one_split()
        share = float(clients.row_weights("train")[clients.targets == self.positive].sum())
        if not 0 < share < 1:
            raise ConfigError("AUC needs rows with the label `positive` and others, but clients have one kind alone")
        problem = AUCProblem(data.shape, self.positive, share, self.regularization, dtype)
        return Task(problem, clients.astype(dtype), data.test_batch(dtype))


@dataclass(frozen=True)
class AUCProblem:
    shape: tuple[int, ...]  # of one input
    positive: int
    share: float  # p
    regularization: float
    dtype: torch.dtype

    capabilities: ClassVar[Capabilities] = Capabilities(stacks=True, predicts=True)

    @cached_property
    def num_inputs(self) -> int:
        return math.prod(self.shape)

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """All scores are 0."""
        return torch.zeros(self.num_inputs + 2, dtype=self.dtype), torch.zeros(1, dtype=self.dtype)

    def scores(self, x: Tensor, inputs: Tensor) -> Tensor:
        return inputs.flatten(-len(self.shape)) @ x[: self.num_inputs]

    def upper(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        p, s, (a, b) = self.share, self.scores(x, batch.inputs), x[-2:]
        pull = 2 * (1 + y) * s
        positive = (1 - p) * ((s - a).square() - pull)
        negative = p * ((s - b).square() + pull)
        values = torch.where(batch.targets == self.positive, positive, negative)
        penalty = 0.5 * self.regularization * x[:-2].square().sum()
        return batch.mean(values) - p * (1 - p) * y.square().sum(-1) + penalty

    def lower(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return -self.upper(x, y, batch)

    def predictions(self, x: Tensor, y: Tensor, part: Batch) -> Tensor:
        return self.scores(x, part.inputs)

    def figures(self, x: Tensor, y: Tensor, predictions: Tensor, test: Batch) -> dict[str, float]:
        """Means over all pairs of a positive score s and another score s': of (1 − s + s')², and of s > s' (ties ½)."""
        positive, scores = test.targets == self.positive, predictions.double()
        s, others = scores[positive], scores[~positive].sort().values
        spread, other_spread = ((part - part.mean()).square().mean() for part in (s, others))
        gap = 1 - s.mean() + others.mean()
        below, not_above = (torch.searchsorted(others, s, right=right).double().mean() for right in (False, True))
        return {
            "test_loss": float(gap.square() + spread + other_spread),
            "test_auc": float((below + not_above) / (2 * len(others))),
        }
