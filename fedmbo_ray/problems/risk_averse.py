"""Risk-averse learning, a composition: x = a linear classifier, y = the mean and the mean square of its losses."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.core.cards import STANDARD, Card
from fedmbo_ray.core.settings import NonNegative, Positive, settings
from fedmbo_ray.data.array_clients import Federated
from fedmbo_ray.data.batches import Batch
from fedmbo_ray.problems.base import Task, require_classes, require_numbers
from fedmbo_ray.problems.heads import classification_metrics, cross_entropies
from fedmbo_ray.problems.linear import LinearClassification


@settings
class RiskAverse:
    """min_x F(E r(x)): g_i = mean_j ½‖y − r_j(x)‖² with r_j = (ℓ_j, ℓ_j²), f_i = y_1 + ρ(y_2 − y_1²) + (λ/2)‖x‖².

    ℓ_j is the cross-entropy of training row j. y*(x) is the mean of r over the rows of all clients, so that Φ(x) is the
    mean of their losses + ρ times the variance + the penalty. ∇²_yy g = I: with ℓ = 1, one term of a Neumann series is
    exact. The direct gradient is that of the penalty; the losses enter through the implicit term alone. Validation
    rows are not used.
    """

    card: ClassVar[Card] = Card("Tarzanagh et al. 2022 (FedNest)", STANDARD)

    risk: NonNegative = 0.1  # ρ
    regularization: Positive = 0.001  # λ
    dtype: Literal["float32", "float64"] = "float32"

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        require_classes(data, "RiskAverse")
        require_numbers(data, "RiskAverse")
        dtype = getattr(torch, self.dtype)
        problem = RiskAverseProblem(data.shape, data.num_classes, dtype, self.risk, self.regularization)
        return Task(problem, data.clients.astype(dtype), data.test_batch(dtype))


@dataclass(frozen=True)
class RiskAverseProblem(LinearClassification):
    risk: float
    regularization: float

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """x⁰ = 0, where all losses are log C, and y⁰ = y*(x⁰)."""
        loss = math.log(self.num_classes)
        return self.zeros(), torch.tensor([loss, loss**2], dtype=self.dtype)

    def classifier(self, x: Tensor, y: Tensor) -> Tensor:
        return x

    def moments(self, x: Tensor, batch: Batch) -> Tensor:
        """r_j, of shape (..., samples, 2)."""
        losses = self.losses(x, batch)
        return torch.stack([losses, losses.square()], -1)

    def upper(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        mean, square = y[..., 0], y[..., 1]
        return mean + self.risk * (square - mean.square()) + 0.5 * self.regularization * x.square().sum()

    def lower(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        distance = (y.unsqueeze(-2) - self.moments(x, batch)).square().sum(-1)
        return 0.5 * batch.mean(distance)

    def figures(self, x: Tensor, y: Tensor, predictions: Tensor, test: Batch) -> dict[str, float]:
        losses = cross_entropies(predictions, test.targets)
        variance = losses.var(correction=0)
        return {
            **classification_metrics(predictions, test.targets),
            "test_loss_variance": float(variance),
            "test_risk": float(losses.mean() + self.risk * variance),
        }
