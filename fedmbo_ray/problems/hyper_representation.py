"""Hyper-representation learning: x = the features' weights, y = the classifier on top of them."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from fedmbo_ray.core.cards import CODE, Card
from fedmbo_ray.core.settings import Positive, settings
from fedmbo_ray.data.array_clients import Federated
from fedmbo_ray.data.batches import Batch
from fedmbo_ray.problems.backbones import Spec, find_backbone, make_backbone, name_and_parameters, try_backbone
from fedmbo_ray.problems.base import Capabilities, Task, require_classes
from fedmbo_ray.problems.flat_module import FlatModule, flatten
from fedmbo_ray.problems.heads import SoftmaxHead, classification_metrics


@settings
class HyperRepresentation:
    """f_i = cross-entropy on client i's validation split, g_i = the same on its training split + (λ/2)‖y‖².

    The penalty is squared: it is what makes g_i strongly convex in y (μ = λ).
    `backbone` is a shipped name or `package.module:function`, alone or with parameters: a function from the
    shape of one input, such as (channels, height, width), and the parameters to a torch module, whose output has
    one row of features per input, which depends on this input alone.
    """

    card: ClassVar[Card] = Card("Franceschi et al. 2018; Tarzanagh et al. 2022", CODE)

    backbone: Annotated[Spec, BeforeValidator(name_and_parameters)] = Field(default={"name": "mlp"})
    regularization: Positive = 0.001  # λ
    feature_norm: Positive | None = None  # r: features are scaled to this length, so that ℓ ≤ (r² + 1)/2 + λ
    dtype: Literal["float32", "float64"] = "float32"
    mixed_precision: bool = False  # features are computed in bfloat16, which is fast on GPUs; the rest in dtype

    def __post_init__(self) -> None:
        find_backbone(self.backbone["name"])

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        dtype = getattr(torch, self.dtype)
        require_classes(data, "HyperRepresentation")
        shape = data.shape
        factory = partial(make_backbone, self.backbone, shape, data.vocabulary)
        with torch.random.fork_rng(devices=[]):
            backbone = factory()
        num_features = try_backbone(self.backbone["name"], backbone, shape, data.vocabulary)
        problem = HyperRepresentationProblem(
            factory,
            backbone,
            shape,
            num_features,
            data.num_classes,
            self.regularization,
            self.feature_norm,
            dtype,
            self.mixed_precision,
        )
        return Task(problem, data.clients.astype(dtype), data.test_batch(dtype))


class Scaled(nn.Module):
    """Rows of a given length."""

    def __init__(self, length: float) -> None:
        super().__init__()
        self.length = length

    def forward(self, features: Tensor) -> Tensor:
        return self.length * normalize(features, dim=-1)


@dataclass(frozen=True)
class HyperRepresentationProblem:
    factory: Callable[[], nn.Module]
    backbone: nn.Module  # only the shapes of its parameters matter; their values are x
    shape: tuple[int, ...]  # of one input
    num_features: int
    num_classes: int
    regularization: float
    feature_norm: float | None
    dtype: torch.dtype
    mixed_precision: bool

    capabilities: ClassVar[Capabilities] = Capabilities(stacks=True, layered=True, model=True, predicts=True)

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """torch's default initialisation of both parts, from `rng` and not from torch's global state."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            backbone, head = self.factory(), nn.Linear(self.num_features, self.num_classes)
        return flatten(backbone).to(self.dtype), flatten(head).to(self.dtype)

    def features(self, x: Tensor, inputs: Tensor) -> Tensor:
        """The features, of shape (..., features), of inputs of shape (..., *shape)."""
        rows = inputs.shape[: inputs.dim() - len(self.shape)]
        with torch.autocast(x.device.type, torch.bfloat16) if self.mixed_precision else nullcontext():
            features = self.flat(x, inputs.reshape(-1, *self.shape))
        features = features.to(self.dtype).view(*rows, -1)
        return features if self.feature_norm is None else self.feature_norm * normalize(features, dim=-1)

    @cached_property
    def flat(self) -> FlatModule:
        return FlatModule(self.backbone)

    @cached_property
    def upper_head(self) -> SoftmaxHead:
        return SoftmaxHead(self.num_features, self.num_classes)

    @cached_property
    def lower_head(self) -> SoftmaxHead:
        return replace(self.upper_head, regularization=self.regularization)

    def upper_sees(self, x: Tensor, batch: Batch) -> Batch:
        return batch._replace(inputs=self.features(x, batch.inputs))

    def lower_sees(self, x: Tensor, batch: Batch) -> Batch:
        return batch._replace(inputs=self.features(x, batch.inputs))

    def upper(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return self.upper_head.loss(y, self.upper_sees(x, batch))

    def lower(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return self.lower_head.loss(y, self.lower_sees(x, batch))

    def model(self, x: Tensor, y: Tensor) -> nn.Module:
        """The classifier that x and y make, of inputs as clients see them."""
        backbone = self.factory()
        for parameter, part in zip(backbone.parameters(), x.split(self.flat.sizes), strict=True):
            parameter.data = part.view(parameter.shape).clone()
        scale = [] if self.feature_norm is None else [Scaled(self.feature_norm)]
        return nn.Sequential(backbone, *scale, self.upper_head.model(y))

    def predictions(self, x: Tensor, y: Tensor, part: Batch) -> Tensor:
        return self.upper_head.logits(y, self.features(x, part.inputs))

    def figures(self, x: Tensor, y: Tensor, predictions: Tensor, test: Batch) -> dict[str, float]:
        return classification_metrics(predictions, test.targets)
