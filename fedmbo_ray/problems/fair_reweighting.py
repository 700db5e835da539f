"""Fair reweighting: x = the weights of groups in training, y = a linear classifier."""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.core.cards import OURS, Card
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import Seeds
from fedmbo_ray.core.settings import NonNegative, Positive, settings
from fedmbo_ray.data.array_clients import ArrayClients, Federated
from fedmbo_ray.data.batches import Batch, ClientIds, Draw
from fedmbo_ray.problems.base import Capabilities, Task, require_classes, require_numbers
from fedmbo_ray.problems.heads import classification_metrics
from fedmbo_ray.problems.linear import LinearClassification, as_tensor, looked_up


@settings
class FairReweighting:
    """g_i = mean_j softmax(x)_{a_j}/π_{a_j}·CE_j(y) + (λ/2)‖y‖², f_i = mean_j CE_j(y) + ρ·mean_{a<b} (L_ia − L_ib)².

    a_j is the group of row j, or its cell of group and label. π_a is the share of a among the training rows of all
    clients, so that the mean of g_i over clients is Σ_a softmax(x)_a·(loss of a) + (λ/2)‖y‖². L_ia is the mean loss of
    client i's own samples of group a: every client is to be fair to its groups; groups that it lacks don't count. With
    `compared: within_labels`, the gaps are those between rows of one label, and f has their mean over labels: where
    groups differ in how frequent a label is, equal losses of groups are not equal odds. The mean over clients of
    squared gaps is at least the square of the mean gap, and the noise of a batch adds to it, so that batches should not
    be small. f does not depend on x: all of the hypergradient is implicit.

    `odds_gap` is the largest difference between two groups of P(class c is predicted | label c) or of
    P(class c is predicted | another label) on test data, for any c: the gap in equalised odds.
    """

    card: ClassVar[Card] = Card("this package, after Roh et al. 2021 (FairBatch)", OURS)

    fairness: NonNegative = 1.0  # ρ
    cells: Literal["groups", "groups_and_labels"] = "groups"  # what has a weight in training
    compared: Literal["groups", "within_labels"] = "groups"  # whose losses are to be equal
    regularization: Positive = 0.001  # λ
    dtype: Literal["float32", "float64"] = "float32"

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        require_classes(data, "FairReweighting")
        require_numbers(data, "FairReweighting")
        groups, test_groups = data.dataset.groups, data.dataset.test_groups
        if groups is None or test_groups is None:
            raise ConfigError(f"FairReweighting needs groups, but {data.dataset.name} has none; name their column")
        dtype, clients = getattr(torch, self.dtype), data.clients
        cells = groups if self.cells == "groups" else groups * data.num_classes + clients.targets
        shares = np.bincount(cells, clients.row_weights("train"))
        problem = FairReweightingProblem(
            data.shape,
            data.num_classes,
            dtype,
            as_tensor(groups),
            as_tensor(test_groups),
            as_tensor(cells),
            as_tensor(np.divide(1, shares, out=np.zeros(len(shares)), where=shares > 0), dtype),
            self.fairness,
            self.compared == "within_labels",
            self.regularization,
        )
        return Task(problem, SeparateClients(**vars(clients.astype(dtype))), data.test_batch(dtype))


class SeparateBatch(NamedTuple):
    """Samples as in `Batch`, for losses that are no means over samples: merged, they keep an axis for the clients."""

    inputs: Tensor
    targets: Tensor
    rows: Tensor
    weights: Tensor

    def merged(self) -> "SeparateBatch":
        return self


class SeparateClients(ArrayClients):
    """Clients whose batches stay separate."""

    def draw(self, clients: ClientIds, seeds: Seeds, draw: Draw, device: torch.device) -> SeparateBatch:  # type: ignore[override]
        return SeparateBatch(*super().draw(clients, seeds, draw, device))


@dataclass(frozen=True)
class FairReweightingProblem(LinearClassification):
    groups: Tensor  # of each training row
    test_groups: Tensor
    cells: Tensor  # of each training row: what has a weight
    rarities: Tensor  # 1/π_a of each cell
    fairness: float
    within_labels: bool
    regularization: float

    capabilities: ClassVar[Capabilities] = Capabilities(model=True, predicts=True)

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Groups have the same weight as in the data, and y⁰ = 0."""
        x = -self.rarities.clamp(min=1e-9).log()
        return x - x.mean(), self.zeros()

    def upper(self, x: Tensor, y: Tensor, batch: SeparateBatch) -> Tensor:
        """The upper loss of one client, or the mean over the clients on a first axis."""
        share = batch.weights.sum(-1)  # of the client; 1 if all clients count the same
        losses, groups = self.losses(y, Batch(*batch)), looked_up(self.groups, batch.rows)
        weights = batch.weights / share.unsqueeze(-1)
        parts = [weights * (batch.targets == c) for c in range(self.num_classes)] if self.within_labels else [weights]
        gaps = torch.stack([squared_gaps(losses, part, groups, int(self.groups.max()) + 1) for part in parts])
        return (share * ((losses * weights).sum(-1) + self.fairness * gaps.mean(0))).mean()

    def lower(self, x: Tensor, y: Tensor, batch: SeparateBatch) -> Tensor:
        weights = (x.softmax(0) * self.rarities.to(x.device))[looked_up(self.cells, batch.rows)]
        losses = (self.losses(y, Batch(*batch)) * weights * batch.weights).sum(-1)
        return losses.mean() + 0.5 * self.regularization * y.square().sum()

    def figures(self, x: Tensor, y: Tensor, predictions: Tensor, test: Batch) -> dict[str, float]:
        chosen = predictions.argmax(1)
        right = (chosen == test.targets).double()
        accuracies = [float(right[self.test_groups == group].mean()) for group in self.test_groups.unique()]
        return {
            **classification_metrics(predictions, test.targets),
            "worst_group_accuracy": min(accuracies),
            "odds_gap": odds_gap(chosen, test.targets, self.test_groups, self.num_classes),
        }


def squared_gaps(losses: Tensor, weights: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """The mean of (L_a − L_b)² over the pairs of groups that occur; 0 if there are none."""
    member = (groups.unsqueeze(-1) == torch.arange(num_groups, device=groups.device)) * weights.unsqueeze(-1)
    size = member.sum(-2)
    means = (losses.unsqueeze(-1) * member).sum(-2) / torch.where(size > 0, size, 1)
    there = (size > 0).to(losses.dtype)
    both = there.unsqueeze(-1) * there.unsqueeze(-2)
    gaps = (means.unsqueeze(-1) - means.unsqueeze(-2)).square() * both
    return gaps.sum((-1, -2)) / (both.sum((-1, -2)) - there.sum(-1)).clamp(min=1)


def odds_gap(predicted: Tensor, targets: Tensor, groups: Tensor, num_classes: int) -> float:
    """The largest difference between groups of true- or false-positive rates, for any class as the positive one."""
    largest = 0.0
    for kind in range(num_classes):
        for truth in (targets == kind, targets != kind):
            rows = [truth & (groups == group) for group in groups.unique()]
            rates = [float((predicted[own] == kind).double().mean()) for own in rows if own.any()]
            largest = max(largest, max(rates) - min(rates)) if rates else largest
    return largest
