"""Distributional robustness over clients, a minimax problem: x = a linear classifier, y = the weights of clients."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.core.cards import STANDARD, Card
from fedmbo_ray.core.settings import Positive, settings
from fedmbo_ray.data.array_clients import Federated
from fedmbo_ray.data.batches import Batch
from fedmbo_ray.problems.base import Task, require_classes, require_numbers
from fedmbo_ray.problems.heads import classification_metrics
from fedmbo_ray.problems.linear import LinearClassification, as_tensor, looked_up
from fedmbo_ray.problems.loss_tuning import means_of_classes


@settings
class RobustClients:
    """min_x max_y mean_i f_i, f_i = u_i(y)·ℓ_i(x) − (γ/2)‖y‖² + (λ/2)‖x‖², u_i(y) = 1 + √m(y_i − ȳ); g_i = −f_i.

    ℓ_i is the cross-entropy on all rows of client i, for training and validation alike. The weights u_i of the m
    clients have mean 1, and u_i(y*) = 1 + (ℓ_i − ℓ̄)/γ, so that Φ(x) = mean_i ℓ_i + Var_i(ℓ_i)/(2γ) + (λ/2)‖x‖²: the
    worst case over client weights with a χ² penalty, as long as they stay positive (`smallest_weight`). As g = −f, the
    hypergradient at y*(x) is ∇_x f (`direct`); the implicit term only corrects for an error of y.
    """

    card: ClassVar[Card] = Card("Mohri et al. 2019 (agnostic FL); Namkoong, Duchi 2017", STANDARD)

    temperature: Positive = 1.0  # γ
    regularization: Positive = 0.001  # λ
    dtype: Literal["float32", "float64"] = "float32"

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        require_classes(data, "RobustClients")
        require_numbers(data, "RobustClients")
        dtype, clients = getattr(torch, self.dtype), data.clients.with_one_split()
        rows = clients.splits["train"]
        owners = np.zeros(len(clients.targets), dtype=np.int64)
        owners[rows.order] = np.repeat(np.arange(clients.num_clients), rows.size)
        problem = RobustClientsProblem(
            data.shape,
            data.num_classes,
            dtype,
            as_tensor(owners),
            clients.num_clients,
            self.temperature,
            self.regularization,
        )
        return Task(problem, clients.astype(dtype), data.test_batch(dtype))


@dataclass(frozen=True)
class RobustClientsProblem(LinearClassification):
    owners: Tensor  # the client of each row
    num_clients: int  # m
    temperature: float
    regularization: float

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """x⁰ = 0, and all clients weigh 1."""
        return self.zeros(), torch.zeros(self.num_clients, dtype=self.dtype)

    def classifier(self, x: Tensor, y: Tensor) -> Tensor:
        return x

    def client_weights(self, y: Tensor) -> Tensor:
        """u(y)."""
        return 1 + self.num_clients**0.5 * (y - y.mean(-1, keepdim=True))

    def upper(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        owners = looked_up(self.owners, batch.rows)
        u = self.client_weights(y).gather(-1, owners.flatten(y.dim() - 1)).view_as(batch.weights)
        penalty = 0.5 * self.regularization * x.square().sum(-1) - 0.5 * self.temperature * y.square().sum(-1)
        return batch.mean(u * self.losses(x, batch)) + penalty

    def lower(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return -self.upper(x, y, batch)

    def figures(self, x: Tensor, y: Tensor, predictions: Tensor, test: Batch) -> dict[str, float]:
        weights, hits = self.client_weights(y), (predictions.argmax(1) == test.targets).to(self.dtype)
        right = means_of_classes(hits, test.targets, self.num_classes)
        return {
            **classification_metrics(predictions, test.targets),
            "worst_class_accuracy": float(right.nan_to_num(1.0).min()),
            "smallest_weight": float(weights.min()),
            "largest_weight": float(weights.max()),
        }
