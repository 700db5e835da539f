"""Regression with learned features: x = the features' weights, y = the ridge regression on top of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from fedmbo_ray.core.cards import STANDARD, Card
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.settings import Positive, settings
from fedmbo_ray.data.array_clients import ArrayClients, Federated
from fedmbo_ray.data.batches import Batch, Draw, Split
from fedmbo_ray.problems.backbones import Spec, find_backbone, make_backbone, name_and_parameters, try_backbone
from fedmbo_ray.problems.base import Capabilities, Task
from fedmbo_ray.problems.heads import prediction_metrics
from fedmbo_ray.problems.hyper_representation import HyperRepresentationProblem


@settings
class RidgeHead:
    """f_i = ½ mean_j (h_y(φ_x(j)) − t_j)² on validation rows j, g_i = the same on training rows + (λ/2)‖y‖².

    φ_x is the `backbone` with the weights x (see `hyper_representation`), h_y a linear map with a bias. The numbers t
    are shifted and scaled to mean 0 and variance 1 over the training rows; `test_rmse` is in their own units.
    y*(x) and Φ(x) have closed forms, `exact_lower` and `exact_value` of the problem.
    """

    card: ClassVar[Card] = Card("Franceschi et al. 2018, with squared losses", STANDARD)

    backbone: Annotated[Spec, BeforeValidator(name_and_parameters)] = Field(default={"name": "mlp"})
    regularization: Positive = 0.001  # λ
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        find_backbone(self.backbone["name"])

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        if data.num_classes:
            raise ConfigError(
                f"RidgeHead needs numbers to predict, but the targets of {data.dataset.name} are labels; "
                "see hyper_representation"
            )
        dtype, shape = getattr(torch, self.dtype), data.shape
        factory = partial(make_backbone, self.backbone, shape, data.vocabulary)
        with torch.random.fork_rng(devices=[]):
            backbone = factory()
        num_features = try_backbone(self.backbone["name"], backbone, shape, data.vocabulary)
        targets = data.clients.targets
        mean, std = float(targets.mean()), float(targets.std())
        problem = RidgeHeadProblem(
            factory, backbone, shape, num_features, 1, self.regularization, None, dtype, False, mean, std
        )
        clients = replace(data.clients, targets=(targets - mean) / std)
        test = data.test_batch(dtype)
        return Task(problem, clients.astype(dtype), test._replace(targets=(test.targets - mean) / std))


@dataclass(frozen=True)
class LinearHead:
    """Σ_j w_j·½(a·φ_j + b − t_j)² + (λ/2)‖y‖² with y = (a, b).

    Of a batch it takes the features φ of shape (..., S, h) as `inputs`, and the weights w of its samples.
    Leading axes of a batch are slots, each with a loss; y has the same axes or, if all share it, none.
    """

    regularization: float = 0.0  # λ

    def predictions(self, y: Tensor, features: Tensor) -> Tensor:
        return (features @ y[..., :-1].unsqueeze(-1)).squeeze(-1) + y[..., -1:]

    def loss(self, y: Tensor, batch: Batch) -> Tensor:
        residuals = self.predictions(y, batch.inputs) - batch.targets
        return batch.mean(0.5 * residuals.square()) + 0.5 * self.regularization * y.square().sum(-1)

    def at(self, y: Tensor, batch: Batch) -> "LinearAt":
        return LinearAt(self, y, batch)

    def model(self, y: Tensor) -> nn.Linear:
        """The layer that y makes: features to numbers."""
        layer = nn.Linear(len(y) - 1, 1)
        layer.weight.data, layer.bias.data = y[None, :-1].clone(), y[-1:].clone()
        return layer


@dataclass
class LinearAt:
    """The derivatives at one y on one batch."""

    head: LinearHead
    y: Tensor
    batch: Batch

    def gradient(self) -> Tensor:
        """∇_y: Σ_j r_j(φ_j, 1) + λy with the residuals r_j = w_j(a·φ_j + b − t_j)."""
        return self._pulled_back(self.residuals, self.y)

    def product(self, v: Tensor) -> Tensor:
        """∇²_yy·v: Σ_j w_ju_j(φ_j, 1) + λv with u_j = c·φ_j + d for v = (c, d)."""
        return self._pulled_back(self.batch.weights * self._predicted(v), v)

    def pulled(self) -> list[tuple[Tensor, Tensor]]:
        """In φ, r_ja."""
        return self._in_features(outer(self.residuals, self.y))

    def pulled_slope(self, v: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The same of ⟨∇_y, v⟩ = Σ_j r_ju_j + λ⟨y, v⟩: in φ, w_ju_ja + r_jc."""
        u = self.batch.weights * self._predicted(v)
        return self._in_features(outer(u, self.y) + outer(self.residuals, v))

    @cached_property
    def residuals(self) -> Tensor:
        return self.batch.weights * (self._predicted(self.y) - self.batch.targets)

    def _predicted(self, y: Tensor) -> Tensor:
        return self.head.predictions(y, self.batch.inputs)

    def _pulled_back(self, r: Tensor, y: Tensor) -> Tensor:
        """The gradient in y of Σ_j r_j·(a·φ_j + b) + (λ/2)‖y‖²."""
        slope = (r.unsqueeze(-2) @ self.batch.inputs).squeeze(-2)
        return torch.cat([slope, r.sum(-1, keepdim=True)], -1) + self.head.regularization * y

    def _in_features(self, gradient: Tensor) -> list[tuple[Tensor, Tensor]]:
        return [(self.batch.inputs, gradient)] if self.batch.inputs.requires_grad else []


def outer(r: Tensor, y: Tensor) -> Tensor:
    """r_j·a for every sample j, with y = (a, b)."""
    return r.unsqueeze(-1) * y[..., :-1].unsqueeze(-2)


@dataclass(frozen=True)
class RidgeHeadProblem(HyperRepresentationProblem):
    """Its first point, its features and what x makes of a batch are those of hyper-representation."""

    target_mean: float = 0.0
    target_std: float = 1.0

    capabilities: ClassVar[Capabilities] = Capabilities(stacks=True, layered=True, model=True, predicts=True)

    @cached_property
    def upper_head(self) -> LinearHead:  # type: ignore[override]
        return LinearHead()

    @cached_property
    def lower_head(self) -> LinearHead:  # type: ignore[override]
        return LinearHead(self.regularization)

    def model(self, x: Tensor, y: Tensor) -> nn.Module:
        """The regression that x and y make, in the units of the data."""
        return super().model(x, self.target_std * y + self.target_mean * (torch.arange(len(y)) == len(y) - 1))

    def predictions(self, x: Tensor, y: Tensor, part: Batch) -> Tensor:
        return self.upper_head.predictions(y, self.features(x, part.inputs))

    def figures(self, x: Tensor, y: Tensor, predictions: Tensor, test: Batch) -> dict[str, float]:
        figures = prediction_metrics(predictions, test.targets)
        scaled = {"test_loss": 0.5 * figures["test_rmse"] ** 2, "test_rmse": self.target_std * figures["test_rmse"]}
        return {**figures, **scaled}

    def exact_lower(self, x: Tensor, data: ArrayClients) -> Tensor:
        """y*(x) = (mean_i F_iᵀW_iF_i + λI)⁻¹ mean_i F_iᵀW_it_i: sums over clients, F_i with a column of ones."""
        gram, moment = torch.zeros(()), torch.zeros(())
        for batch in every_client(data, "train"):
            F = nn.functional.pad(self.features(x, batch.inputs), (0, 1), value=1.0)
            weighted = F * batch.weights.unsqueeze(-1)
            gram, moment = gram + F.mT @ weighted, moment + batch.targets @ weighted
        gram = gram + data.num_clients * self.regularization * torch.eye(len(moment), dtype=self.dtype)
        return torch.linalg.solve(gram, moment)

    def exact_value(self, x: Tensor, data: ArrayClients) -> Tensor:
        """Φ(x) = mean_i f_i(x, y*(x)), which autograd can differentiate."""
        y = self.exact_lower(x, data)
        losses = [self.upper(x, y, batch) for batch in every_client(data, "validation")]
        return torch.stack(losses).mean()


def every_client(data: ArrayClients, split: Split) -> Iterator[Batch]:
    """All samples of a split, client after client."""
    for client in range(data.num_clients):
        seeds = np.zeros(1, dtype=np.uint64)
        batch = data.draw(np.array([client]), seeds, Draw(split, None), torch.device("cpu"))
        yield Batch(*(field[0] for field in batch))
