"""Template of a problem: settings, whose fields are the keys in YAML, and the problem that they build."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedmbo_ray import Batch, Federated, Task, settings


@settings
class PixelRidge:
    """x = the logarithm of a ridge penalty per pixel, y = a linear classifier; x minimises the validation loss."""

    start: float = -4.0  # of every entry of x

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        """`data` is the partitioned data set; a problem without one declares ``needs_data: ClassVar[bool] = False``."""
        assert data is not None
        pixels = math.prod(data.shape)
        problem = PixelRidgeProblem(pixels, data.num_classes, self.start)
        return Task(problem, data.clients, data.test_batch(torch.float32))


@dataclass(frozen=True)
class PixelRidgeProblem:
    """x and y are flat vectors; only the problem knows the shapes behind them."""

    pixels: int
    classes: int
    start: float

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        return torch.full((self.pixels,), self.start), torch.zeros(self.pixels * self.classes)

    def logits(self, y: Tensor, inputs: Tensor) -> Tensor:
        return inputs.flatten(1) @ y.view(self.pixels, self.classes)

    def upper(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """f_i(x, y; ξ): a mean over the batch, without randomness or branching on values."""
        return batch.mean(cross_entropy(self.logits(y, batch.inputs), batch.targets, reduction="none"))

    def lower(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """g_i(x, y; ζ): strongly convex in y."""
        penalty = (x.exp()[:, None] * y.view(self.pixels, self.classes).square()).sum() / 2
        return batch.mean(cross_entropy(self.logits(y, batch.inputs), batch.targets, reduction="none")) + penalty

    def metrics(self, x: Tensor, y: Tensor, test: Batch | None) -> dict[str, float]:
        """Figures for the records, besides the two losses."""
        assert test is not None  # `build` has put it into the task
        logits = self.logits(y, test.inputs)
        return {
            "test_loss": float(cross_entropy(logits, test.targets)),
            "test_accuracy": float((logits.argmax(1) == test.targets).float().mean()),
        }
