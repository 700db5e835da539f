"""Hyper-representation learning: x = the features' weights, y = the classifier on top of them."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from fedmbo_ray.cards import CODE, Card
from fedmbo_ray.data import Batch, Federated
from fedmbo_ray.problems.backbones import BACKBONES
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.softmax import SoftmaxHead, classification_metrics
from fedmbo_ray.registry import Positive, choices, settings


def name_and_parameters(backbone: Any) -> dict[str, Any]:
    spec = dict(backbone) if isinstance(backbone, Mapping) else {"name": backbone}
    if not isinstance(spec.get("name"), str):
        raise ValueError(f"a backbone must be a name or a mapping with a name, but got {backbone!r}")
    return spec


@settings
class HyperRepresentation:
    """f_i = cross-entropy on client i's validation split, g_i = the same on its training split + (λ/2)‖y‖².

    The penalty is squared: it is what makes g_i strongly convex in y (μ = λ).
    `backbone` is a shipped name or `package.module:function`, alone or with parameters: a function from the
    shape of one input (channels, height, width) and the parameters to a torch module, whose output has
    one row of features per input.
    """

    card: ClassVar[Card] = Card("Franceschi et al. 2018; Tarzanagh et al. 2022", CODE)

    backbone: Annotated[dict[str, Any], BeforeValidator(name_and_parameters)] = Field(default={"name": "mlp"})
    regularization: Positive = 0.001  # λ
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        find_backbone(self.backbone["name"])

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        dtype = getattr(torch, self.dtype)
        shape = tuple(data.clients.inputs.shape[1:])
        factory = partial(make_backbone, self.backbone, shape)
        with torch.random.fork_rng(devices=[]):
            backbone = factory()
        num_features = count_features(backbone, shape)
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

    stacks = True

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """torch's default initialisation of both parts, from `rng` and not from torch's global state."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            backbone, head = self.factory(), nn.Linear(self.num_features, self.num_classes)
        return flatten(backbone).to(self.dtype), flatten(head).to(self.dtype)

    def features(self, x: Tensor, inputs: Tensor) -> Tensor:
        """Of shape (..., features) for inputs of shape (..., channels, height, width)."""
        features = self.placed(x, inputs.flatten(0, -4))
        return features.view(*inputs.shape[:-3], -1)

    @cached_property
    def placed(self) -> "Placed":
        return Placed(self.backbone)

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
        for parameter, part in zip(backbone.parameters(), x.split(self.placed.sizes), strict=True):
            parameter.data = part.view(parameter.shape).clone()
        return nn.Sequential(backbone, self.upper_head.model(y))

    def metrics(self, x: Tensor, y: Tensor, test: Batch | None) -> dict[str, float]:
        assert test is not None
        parts = [self.upper_head.logits(y, self.features(x, part)) for part in test.inputs.split(1000)]
        return classification_metrics(torch.cat(parts), test.targets)


class Placed:
    """A module as a function of its parameters, which it takes as one vector.

    What `functional_call` does, without its price: with a small model it takes longer than the model.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        places: dict[int, list[Any]] = {id(parameter): [] for parameter in module.parameters()}
        for owner in module.modules():
            for name, parameter in owner._parameters.items():
                if parameter is not None:
                    places[id(parameter)].append((owner._parameters, name))
        self.places = list(places.values())  # a tied parameter has several
        self.shapes = [parameter.shape for parameter in module.parameters()]
        self.sizes = [shape.numel() for shape in self.shapes]
        self.own = list(module.parameters())

    def __call__(self, x: Tensor, inputs: Tensor) -> Tensor:
        self._place(part.view(shape) for part, shape in zip(x.split(self.sizes), self.shapes, strict=True))
        try:
            return self.module(inputs)
        finally:
            self._place(self.own)

    def _place(self, tensors: Any) -> None:
        for places, tensor in zip(self.places, tensors, strict=True):
            for parameters, name in places:
                parameters[name] = tensor


def flatten(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def find_backbone(name: str) -> Any:
    """The function behind a shipped name or `package.module:function`."""
    if name in BACKBONES:
        return BACKBONES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"unknown backbone {name!r}; {choices(name, list(BACKBONES))}, or package.module:function")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a user's module raises
        raise ValueError(f"backbone {name!r} can't be imported: {first_line(error)}") from None


def make_backbone(spec: dict[str, Any], input_shape: tuple[int, ...]) -> nn.Module:
    name, parameters = spec["name"], {key: value for key, value in spec.items() if key != "name"}
    try:
        backbone = find_backbone(name)(input_shape, **parameters)
    except Exception as error:  # whatever a user's function raises
        raise ValueError(f"backbone {name!r} can't be made with {parameters}: {first_line(error)}") from None
    if not isinstance(backbone, nn.Module) or not any(True for _ in backbone.parameters()):
        raise ValueError(f"a backbone must be a torch module with parameters, but {name!r} gave {backbone!r}")
    if any(True for _ in backbone.buffers()):
        raise ValueError(f"a backbone must have no buffers (batch statistics are client state), but {name!r} has")
    if any(isinstance(module, _DropoutNd) for module in backbone.modules()):
        raise ValueError(f"a backbone must be free of randomness, but {name!r} has dropout")
    return backbone


def count_features(backbone: nn.Module, input_shape: tuple[int, ...]) -> int:
    """How many features a backbone gives for one input, tried out on two."""
    try:
        shape = tuple(backbone(torch.zeros(2, *input_shape)).shape)
    except Exception as error:  # whatever a user's module raises
        raise ValueError(f"the backbone can't take inputs of shape {input_shape}: {first_line(error)}") from None
    if len(shape) != 2 or shape[0] != 2 or shape[1] < 1:
        raise ValueError(f"a backbone must give one row of features per input, but for two inputs it gave {shape}")
    return shape[1]


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
