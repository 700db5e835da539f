"""A problem from two losses on torch modules, which is all that a user has to write."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedmbo_ray.core.errors import ConfigError, first_line
from fedmbo_ray.core.settings import settings
from fedmbo_ray.data.array_clients import Federated
from fedmbo_ray.data.batches import Batch
from fedmbo_ray.problems.base import Capabilities, Task
from fedmbo_ray.problems.flat_module import FlatModule, flatten
from fedmbo_ray.problems.heads import prediction_metrics
from fedmbo_ray.problems.probes import require_loss_per_sample, warn_unless_convex

ModuleLoss = Callable[[Any, Any, Batch], Tensor]  # of the module of x, that of y, and a batch: one loss per sample
Predict = Callable[[Any, Any, Tensor], Tensor]  # of both modules and inputs: logits, or numbers


class DataInfo(NamedTuple):
    """What a function that makes a problem knows about the data.

    Args:
        shape: of one input.
        num_classes: how many labels there are; 0 for regression.
        num_rows: how many training rows there are; `batch.rows` are positions among them.
        num_clients: m.
        vocabulary: how many tokens there are, for inputs that are tokens; else 0.
    """

    shape: tuple[int, ...]
    num_classes: int
    num_rows: int
    num_clients: int
    vocabulary: int = 0

    @property
    def num_inputs(self) -> int:
        """The number of entries of one input."""
        return math.prod(self.shape)

    @staticmethod
    def of(data: Federated) -> "DataInfo":
        rows, clients = len(data.clients.targets), data.clients.num_clients
        return DataInfo(data.shape, data.num_classes, rows, clients, data.vocabulary)


class TwoLosses(NamedTuple):
    """A bilevel problem as two losses of two torch modules: what a function named in a config returns.

    Args:
        x: the module whose parameters are the upper variable.
        y: the module whose parameters are the lower variable.
        upper: a function of x, y and a `Batch` (`inputs`, `targets`, `rows`): one loss per sample (reduction="none").
        lower: the same for the lower loss; a penalty on y, which makes it strongly convex, is added to every sample's.
        predict: a function of x, y and inputs: logits, or numbers for regression; it adds figures on test data and
            gives a run its `model()`.

    Example:
        >>> from torch import nn
        >>> from torch.nn.functional import cross_entropy
        >>> def problem(data, width: int = 32):
        ...     features = nn.Sequential(nn.Flatten(), nn.Linear(data.num_inputs, width), nn.Tanh())
        ...     head = nn.Linear(width, data.num_classes)
        ...
        ...     def predict(features, head, inputs):
        ...         return head(features(inputs))
        ...
        ...     def upper(features, head, batch):
        ...         return cross_entropy(predict(features, head, batch.inputs), batch.targets, reduction="none")
        ...
        ...     def lower(features, head, batch):
        ...         penalty = sum(weights.square().sum() for weights in head.parameters())
        ...         return upper(features, head, batch) + 0.01 * penalty
        ...
        ...     return TwoLosses(features, head, upper, lower, predict)
        >>> problem(DataInfo((1, 8, 8), 10, 1000, 50)).y
        Linear(in_features=32, out_features=10, bias=True)
    """

    x: nn.Module
    y: nn.Module
    upper: ModuleLoss
    lower: ModuleLoss
    predict: Predict | None = None


Make = Callable[[DataInfo], TwoLosses]


@dataclass(frozen=True)
class TwoLossesProblem:
    """The problem of two losses: modules become functions of flat vectors."""

    make: Make
    info: DataInfo
    dtype: torch.dtype = torch.float32

    capabilities: ClassVar[Capabilities] = Capabilities(model=True, predicts=True)

    @cached_property
    def losses(self) -> TwoLosses:
        with torch.random.fork_rng(devices=[]):
            made = self.make(self.info)
        return made._replace(x=made.x.to(self.dtype), y=made.y.to(self.dtype))

    @cached_property
    def flat(self) -> tuple[FlatModule, FlatModule]:
        return FlatModule(self.losses.x), FlatModule(self.losses.y)

    def __getstate__(self) -> dict[str, Any]:
        """The state to pickle, without modules: each process makes its own."""
        return {"make": self.make, "info": self.info, "dtype": self.dtype}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _ = self.flat  # now, because inside a kernel the modules could not draw their first weights

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The initialisation that the modules give themselves, from `rng` and not from torch's global state."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            made = self.make(self.info)
        return flatten(made.x).to(self.dtype), flatten(made.y).to(self.dtype)

    def each(self, loss: ModuleLoss, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """One loss per sample."""
        with self.flat[0].at(x) as upper, self.flat[1].at(y) as lower:
            return loss(upper, lower, batch)

    def upper(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return batch.mean(self.each(self.losses.upper, x, y, batch))

    def lower(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return batch.mean(self.each(self.losses.lower, x, y, batch))

    def predictions(self, x: Tensor, y: Tensor, part: Batch) -> Tensor:
        """The upper loss of each sample; with `predict`, also the prediction for it."""
        columns = [self.each(self.losses.upper, x, y, part)]
        if self.losses.predict is not None:
            with self.flat[0].at(x) as upper, self.flat[1].at(y) as lower:
                columns.append(self.losses.predict(upper, lower, part.inputs))
        return torch.cat([column.unsqueeze(-1).flatten(1) for column in columns], 1)

    def figures(self, x: Tensor, y: Tensor, predictions: Tensor, test: Batch) -> dict[str, float]:
        """The upper loss on test data; with `predict`, how good predictions are."""
        figures = {"test_loss": float(predictions[:, 0].mean())}
        if self.losses.predict is None:
            return figures
        return prediction_metrics(predictions[:, 1:], test.targets) | figures

    def model(self, x: Tensor, y: Tensor) -> nn.Module:
        """The module that predicts, with the weights x and y."""
        if self.losses.predict is None:
            raise ConfigError("the problem has no `predict`, so it has no model")
        made = self.make(self.info)
        for module, vector in ((made.x, x), (made.y, y)):
            nn.utils.vector_to_parameters(vector.detach().clone(), module.parameters())
        return Predictor(made)


class Predictor(nn.Module):
    """The two modules as one that maps inputs to predictions."""

    def __init__(self, losses: TwoLosses) -> None:
        super().__init__()
        self.x, self.y, self.predict = losses.x, losses.y, losses.predict

    def forward(self, inputs: Tensor) -> Tensor:
        assert self.predict is not None
        return self.predict(self.x, self.y, inputs)


def task_of(make: Make, name: str, data: Federated, dtype: torch.dtype = torch.float32) -> Task:
    """A task of two losses on a data set, after they have been tried out."""
    info = DataInfo.of(data)
    try:
        made = make(info)
    except ConfigError:
        raise
    except Exception as error:  # whatever a user's function raises
        raise ConfigError(f"problem {name!r} can't be made: {type(error).__name__}: {first_line(error)}") from error
    if not isinstance(made, TwoLosses) or not all(isinstance(each, nn.Module) for each in made[:2]):
        raise ConfigError(f"problem {name!r} must return TwoLosses(x, y, upper, lower) with modules, but gave {made!r}")
    for variable, module in (("x", made.x), ("y", made.y)):
        if not any(True for _ in module.parameters()):
            raise ConfigError(
                f"{variable} of problem {name!r} must be a module with parameters, but {module!r} has none"
            )
    problem, clients = TwoLossesProblem(make, info, dtype), data.clients.astype(dtype)
    require_loss_per_sample(problem, name, clients)
    warn_unless_convex(problem, name, clients)
    return Task(problem, clients, data.test_batch(dtype))


def settings_of(found: object, name: str) -> object:
    """A class of settings made from a function of the data and parameters, which become keys; a class is unchanged."""
    if isinstance(found, type) or not callable(found):
        return found
    _, *parameters = inspect.signature(found).parameters.values()
    defaults = {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}

    def build(self: Any, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        values = {each.name: getattr(self, each.name) for each in parameters}
        return task_of(Called(found, values), name, data)

    members = {"__doc__": inspect.getdoc(found), "build": build, **defaults}
    members["__annotations__"] = {each.name: _type_of(each) for each in parameters}
    return settings(type(getattr(found, "__name__", "Problem"), (), members))


@dataclass(frozen=True)
class Called:
    """A function with its parameters; it can be pickled."""

    function: Callable[..., TwoLosses]
    parameters: Mapping[str, object]

    def __call__(self, info: DataInfo) -> TwoLosses:
        return self.function(info, **self.parameters)


def _type_of(parameter: inspect.Parameter) -> Any:
    """What a config may give: the annotation, else the type of the default."""
    if parameter.annotation is not inspect.Parameter.empty and not isinstance(parameter.annotation, str):
        return parameter.annotation
    return Any if parameter.default in (None, inspect.Parameter.empty) else type(parameter.default)
