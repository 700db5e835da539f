"""Hyper-representation learning: x = the features' weights, y = the classifier on top of them."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
import torch
from annotated_types import Gt
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, linear

from fedmbo_ray.data import Batch, Federated
from fedmbo_ray.problems.backbones import BACKBONES
from fedmbo_ray.problems.base import Task
from fedmbo_ray.registry import choices


@pydantic.dataclasses.dataclass(frozen=True, config={"extra": "forbid"})
class HyperRepresentation:
    """f_i = cross-entropy on client i's validation split, g_i = the same on its training split + (λ/2)‖y‖².

    The penalty is squared: it is what makes g_i strongly convex in y (μ = λ).
    `backbone` is a shipped name or `package.module:function`, a function from the shape of one input
    (channels, height, width) and `backbone_args` to a torch module.
    """

    backbone: str = "mlp"
    backbone_args: dict[str, Any] = pydantic.Field(default_factory=dict)
    regularization: Annotated[float, Gt(0)] = 0.001  # λ
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        find_backbone(self.backbone)

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        dtype = getattr(torch, self.dtype)
        shape = tuple(data.clients.inputs.shape[1:])
        factory = partial(make_backbone, self.backbone, self.backbone_args, shape)
        backbone = factory()
        num_features = backbone(torch.zeros(1, *shape)).shape[-1]
        problem = HyperRepresentationProblem(
            factory, backbone, num_features, data.num_classes, self.regularization, dtype
        )
        return Task(problem, data.clients.astype(dtype), data.test_batch(dtype))


@dataclass(frozen=True)
class HyperRepresentationProblem:
    factory: Callable[[], nn.Module]
    backbone: nn.Module  # only the shapes of its parameters matter; their values are x
    num_features: int
    num_classes: int
    regularization: float
    dtype: torch.dtype

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """torch's default initialisation of both parts, from `rng` and not from torch's global state."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            backbone, head = self.factory(), nn.Linear(self.num_features, self.num_classes)
        return flatten(backbone).to(self.dtype), flatten(head).to(self.dtype)

    def features(self, x: Tensor, inputs: Tensor) -> Tensor:
        parameters, start = {}, 0
        for name, parameter in self.backbone.named_parameters():
            size = parameter.numel()
            parameters[name] = x[start : start + size].view(parameter.shape)
            start += size
        return functional_call(self.backbone, parameters, (inputs,))

    def logits(self, y: Tensor, features: Tensor) -> Tensor:
        weights = self.num_features * self.num_classes
        return linear(features, y[:weights].view(self.num_classes, -1), y[weights:])

    def upper(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return cross_entropy(self.logits(y, self.features(x, batch.inputs)), batch.targets)

    def lower(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return self.upper(x, y, batch) + 0.5 * self.regularization * (y @ y)

    def metrics(self, x: Tensor, y: Tensor, test: Batch | None) -> dict[str, float]:
        assert test is not None
        logits = torch.cat([self.logits(y, self.features(x, part)) for part in test.inputs.split(1000)])
        return classification_metrics(logits, test.targets)


def flatten(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def classification_metrics(logits: Tensor, targets: Tensor) -> dict[str, float]:
    accuracy = (logits.argmax(1) == targets).double().mean()
    return {"test_loss": float(cross_entropy(logits, targets)), "test_accuracy": float(accuracy)}


def find_backbone(name: str) -> Any:
    """The function behind a shipped name or `package.module:function`."""
    if name in BACKBONES:
        return BACKBONES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"unknown backbone {name!r}; {choices(name, list(BACKBONES))}, or package.module:function")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"backbone {name!r} can't be imported: {error}") from None


def make_backbone(name: str, args: dict[str, Any], input_shape: tuple[int, ...]) -> nn.Module:
    try:
        backbone = find_backbone(name)(input_shape, **args)
    except TypeError as error:
        raise ValueError(f"backbone {name!r} does not take {args}: {error}") from None
    if any(True for _ in backbone.buffers()):
        raise ValueError(f"a backbone must have no buffers (batch statistics are client state), but {name!r} has")
    if not any(True for _ in backbone.parameters()):
        raise ValueError(f"a backbone must have parameters, but {name!r} has none")
    return backbone.eval()
