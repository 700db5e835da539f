"""Data hyper-cleaning: x = one weight per training row, y = a linear classifier trained on weighted rows."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedmbo_ray.core.cards import STANDARD, Card
from fedmbo_ray.core.settings import Positive, settings
from fedmbo_ray.data.array_clients import Federated
from fedmbo_ray.data.batches import Batch
from fedmbo_ray.problems.base import Capabilities, Task, require_classes, require_numbers
from fedmbo_ray.problems.heads import SoftmaxHead, classification_metrics


@settings
class HyperCleaning:
    """g_i = mean_j sigmoid(x_j)·CE(y; j) over training rows j + (λ/2)‖y‖², f_i = CE on clean validation rows.

    Made for `data.label_noise` > 0. Rows with replaced labels should end with the smaller weights:
    `cleaning_auc` is the probability that a random clean training row outweighs a random corrupted one.
    """

    card: ClassVar[Card] = Card("Franceschi et al. 2017", STANDARD)

    regularization: Positive = 0.001  # λ
    dtype: Literal["float32", "float64"] = "float32"

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        require_classes(data, "HyperCleaning")
        require_numbers(data, "HyperCleaning")
        dtype = getattr(torch, self.dtype)
        problem = HyperCleaningProblem(
            shape=data.shape,
            num_classes=data.num_classes,
            train_rows=data.clients.splits["train"].order,
            corrupted=data.corrupted,
            regularization=self.regularization,
            dtype=dtype,
        )
        return Task(problem, data.clients.astype(dtype), data.test_batch(dtype))


@dataclass(frozen=True)
class HyperCleaningProblem:
    shape: tuple[int, ...]  # of one input
    num_classes: int
    train_rows: np.ndarray
    corrupted: np.ndarray
    regularization: float
    dtype: torch.dtype

    capabilities: ClassVar[Capabilities] = Capabilities(stacks=True, layered=True, model=True, predicts=True)

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """All rows weigh ½, and y⁰ = 0."""
        x = torch.zeros(len(self.corrupted), dtype=self.dtype)
        return x, torch.zeros((self.num_inputs + 1) * self.num_classes, dtype=self.dtype)

    @cached_property
    def upper_head(self) -> SoftmaxHead:
        return SoftmaxHead(self.num_inputs, self.num_classes)

    @cached_property
    def lower_head(self) -> SoftmaxHead:
        return replace(self.upper_head, regularization=self.regularization)

    @property
    def num_inputs(self) -> int:
        return math.prod(self.shape)

    def flat(self, inputs: Tensor) -> Tensor:
        """Each input as one vector."""
        return inputs.flatten(-len(self.shape))

    def upper_sees(self, x: Tensor, batch: Batch) -> Batch:
        return batch._replace(inputs=self.flat(batch.inputs))

    def lower_sees(self, x: Tensor, batch: Batch) -> Batch:
        weights = torch.sigmoid(x[batch.rows]) * batch.weights
        return batch._replace(inputs=self.flat(batch.inputs), weights=weights)

    def upper(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return self.upper_head.loss(y, self.upper_sees(x, batch))

    def lower(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return self.lower_head.loss(y, self.lower_sees(x, batch))

    def model(self, x: Tensor, y: Tensor) -> nn.Module:
        """The classifier y, of inputs as clients see them."""
        return nn.Sequential(nn.Flatten(), self.upper_head.model(y))

    def predictions(self, x: Tensor, y: Tensor, part: Batch) -> Tensor:
        return self.upper_head.logits(y, self.flat(part.inputs))

    def figures(self, x: Tensor, y: Tensor, predictions: Tensor, test: Batch) -> dict[str, float]:
        return {
            **classification_metrics(predictions, test.targets),
            "cleaning_auc": cleaning_auc(x.numpy()[self.train_rows], self.corrupted[self.train_rows]),
        }


def cleaning_auc(weights: np.ndarray, corrupted: np.ndarray) -> float:
    """P(weight of a clean row > weight of a corrupted one), ties counted half; 0.5 if there are none."""
    from scipy.stats import rankdata  # takes a second to import, which every actor would pay for

    bad, good = int(corrupted.sum()), int((~corrupted).sum())
    if not bad or not good:
        return 0.5
    return float((rankdata(weights)[~corrupted].sum() - good * (good + 1) / 2) / (bad * good))
