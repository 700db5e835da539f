"""Selection of regularization: x = the logarithms of penalties, y = a linear classifier."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.core.cards import CODE, Card
from fedmbo_ray.core.settings import Positive, settings
from fedmbo_ray.data.array_clients import Federated
from fedmbo_ray.data.batches import Batch
from fedmbo_ray.problems.base import Task, require_classes, require_numbers
from fedmbo_ray.problems.heads import classification_metrics
from fedmbo_ray.problems.linear import LinearClassification

Per = Literal["feature", "class"]


@settings
class Regularization:
    """g_i = CE on client i's training split + ½Σ_j exp(x_j)‖y_j‖², f_i = CE on its validation split.

    y_j are the weights of feature j (the constant feature of the biases is the last one), or those of class j. f does
    not depend on x, so all of the hypergradient is implicit.
    """

    card: ClassVar[Card] = Card("Pedregosa 2016; Dagréou et al. 2022 (benchmark_bilevel)", CODE)

    per: Per = "feature"
    initial: Positive = 0.01  # exp(x⁰), the penalty of all y_j at first
    dtype: Literal["float32", "float64"] = "float32"

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        require_classes(data, "Regularization")
        require_numbers(data, "Regularization")
        dtype = getattr(torch, self.dtype)
        problem = RegularizationProblem(data.shape, data.num_classes, dtype, self.per, self.initial)
        return Task(problem, data.clients.astype(dtype), data.test_batch(dtype))


@dataclass(frozen=True)
class RegularizationProblem(LinearClassification):
    per: Per
    initial: float

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """All penalties alike, and y⁰ = 0."""
        size = self.num_classes if self.per == "class" else self.head.num_features + 1
        return torch.full((size,), math.log(self.initial), dtype=self.dtype), self.zeros()

    def squares(self, y: Tensor) -> Tensor:
        """‖y_j‖² for all j."""
        W, b = self.head.weights(y).square(), y[..., -self.num_classes :].square()
        if self.per == "class":
            return W.sum(-1) + b
        return torch.cat([W.sum(-2), b.sum(-1, keepdim=True)], -1)

    def upper(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return batch.mean(self.losses(y, batch))

    def lower(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return batch.mean(self.losses(y, batch)) + 0.5 * (x.exp() * self.squares(y)).sum(-1)

    def figures(self, x: Tensor, y: Tensor, predictions: Tensor, test: Batch) -> dict[str, float]:
        return {
            **classification_metrics(predictions, test.targets),
            "smallest_penalty": float(x.min().exp()),
            "largest_penalty": float(x.max().exp()),
        }
