"""Loss tuning for imbalanced classes: x = a scale and a shift of every logit, y = a linear classifier."""

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
from fedmbo_ray.problems.heads import cross_entropies
from fedmbo_ray.problems.linear import LinearClassification, as_tensor, looked_up


@settings
class LossTuning:
    """g_i = mean_j −log softmax(Δ∘z_j + ι)_{c_j} + (λ/2)‖y‖², f_i = mean_j −log softmax(z_j)_{c_j}/(C·π_{c_j}).

    x = (log Δ, ι), z_j are the logits of the linear classifier y for sample j, c_j is its class, C the number of
    classes and π_c the share of class c among the validation rows of all clients: in the mean over clients, f weighs
    all classes alike. f does not depend on x, so all of the hypergradient is implicit. Made for `data.imbalance` > 1.
    Figures weigh all classes alike, too; `tail_accuracy` is that of the third of them with the fewest training rows.
    """

    card: ClassVar[Card] = Card("Li et al. 2021 (AutoBalance)", STANDARD)

    regularization: Positive = 0.001  # λ
    dtype: Literal["float32", "float64"] = "float32"

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        require_classes(data, "LossTuning")
        require_numbers(data, "LossTuning")
        dtype, C, clients = getattr(torch, self.dtype), data.num_classes, data.clients
        shares = np.bincount(clients.targets, clients.row_weights("validation"), C)
        counts = np.bincount(clients.targets[clients.splits["train"].order], minlength=C)
        weights = np.divide(1, C * shares, out=np.zeros(C), where=shares > 0)
        tail = np.argsort(counts, kind="stable")[: -(-C // 3)]
        problem = LossTuningProblem(
            data.shape, C, dtype, as_tensor(weights, dtype), as_tensor(tail), self.regularization
        )
        return Task(problem, clients.astype(dtype), data.test_batch(dtype))


@dataclass(frozen=True)
class LossTuningProblem(LinearClassification):
    class_weights: Tensor  # 1/(C·π_c); 0 if nobody validates on class c
    tail: Tensor  # the rarest classes
    regularization: float

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The ordinary cross-entropy (Δ = 1, ι = 0), and y⁰ = 0."""
        return torch.zeros(2 * self.num_classes, dtype=self.dtype), self.zeros()

    def upper(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return batch.mean(looked_up(self.class_weights, batch.targets) * self.losses(y, batch))

    def lower(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        log_scale, shift = x.split(self.num_classes)
        z = log_scale.exp() * self.logits(y, batch.inputs) + shift
        return batch.mean(cross_entropies(z, batch.targets)) + 0.5 * self.regularization * y.square().sum(-1)

    def figures(self, x: Tensor, y: Tensor, predictions: Tensor, test: Batch) -> dict[str, float]:
        hits = (predictions.argmax(1) == test.targets).to(self.dtype)
        right = means_of_classes(hits, test.targets, self.num_classes)
        losses = means_of_classes(cross_entropies(predictions, test.targets), test.targets, self.num_classes)
        return {
            "test_loss": float(losses.nanmean()),
            "test_accuracy": float(right.nanmean()),
            "tail_accuracy": float(right[self.tail].nanmean()),
        }


def means_of_classes(values: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """The mean of the samples' values in each class; nan for a class without samples."""
    sums = values.new_zeros(num_classes).index_add(0, targets, values)
    return sums / targets.bincount(minlength=num_classes)
