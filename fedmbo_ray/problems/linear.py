"""What problems with a linear softmax classifier on the inputs have in common."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedmbo_ray.data.batches import Batch
from fedmbo_ray.problems.base import Capabilities
from fedmbo_ray.problems.heads import SoftmaxHead, cross_entropies


@dataclass(frozen=True)
class LinearClassification:
    """A classifier (W, b) with logits z = W·input + b; y is this classifier, unless a problem says otherwise.

    Losses take stacks of y: leading axes of a batch are slots, each with a loss.
    """

    shape: tuple[int, ...]  # of one input
    num_classes: int
    dtype: torch.dtype

    capabilities: ClassVar[Capabilities] = Capabilities(stacks=True, model=True, predicts=True)

    @cached_property
    def head(self) -> SoftmaxHead:
        return SoftmaxHead(math.prod(self.shape), self.num_classes)

    def zeros(self) -> Tensor:
        """The classifier that gives all classes the same probability."""
        return torch.zeros((self.head.num_features + 1) * self.num_classes, dtype=self.dtype)

    def logits(self, weights: Tensor, inputs: Tensor) -> Tensor:
        return self.head.logits(weights, inputs.flatten(-len(self.shape)))

    def losses(self, weights: Tensor, batch: Batch) -> Tensor:
        """The cross-entropy of each sample."""
        return cross_entropies(self.logits(weights, batch.inputs), batch.targets)

    def predictions(self, x: Tensor, y: Tensor, part: Batch) -> Tensor:
        return self.logits(self.classifier(x, y), part.inputs)

    def model(self, x: Tensor, y: Tensor) -> nn.Module:
        """The classifier, of inputs as clients see them."""
        return nn.Sequential(nn.Flatten(), self.head.model(self.classifier(x, y)))

    def classifier(self, x: Tensor, y: Tensor) -> Tensor:
        """x or y, whichever is the classifier."""
        return y


def as_tensor(array: np.ndarray, dtype: torch.dtype | None = None) -> Tensor:
    """The array copied into a tensor, which a problem keeps."""
    return torch.tensor(array, dtype=dtype)


def looked_up(table: Tensor, rows: Tensor) -> Tensor:
    """table[rows], on the device of the rows."""
    return table.to(rows.device)[rows]
