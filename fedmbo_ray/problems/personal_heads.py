"""Shared features, personal classifiers: x = the features' weights, y_i = the classifier of client i."""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Gt, Lt
from torch import Tensor

from fedmbo_ray.core.cards import RECONSTRUCTED, Card
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import stream
from fedmbo_ray.core.settings import settings
from fedmbo_ray.data.array_clients import ArrayClients, Federated, Rows
from fedmbo_ray.data.batches import Batch
from fedmbo_ray.data.values import Targets
from fedmbo_ray.problems.base import Capabilities, Task
from fedmbo_ray.problems.heads import cross_entropies
from fedmbo_ray.problems.hyper_representation import HyperRepresentation, HyperRepresentationProblem
from fedmbo_ray.problems.linear import as_tensor, looked_up


@settings
class PersonalHeads(HyperRepresentation):
    """Hyper-representation in which every client trains a classifier y_i of its own: y_i*(x) = argmin_y g_i(x, y).

    f_i, g_i and the backbone are those of `hyper_representation`; Φ(x) = mean_i f_i(x, y_i*(x)). This is meta-learning:
    features from which every client can learn its own task. Methods with one y for all clients run as well; for them
    the problem is `hyper_representation` with other figures.

    A share `test` of each client's rows is held out to test its classifier; the test rows of the data set, which belong
    to no client, are not used. `test_accuracy` and `test_loss` are means over clients; `worst_tenth_accuracy` is
    the mean over the tenth of the clients whose accuracy is lowest.
    Reconstructed; not checked against the paper's text.
    """

    card: ClassVar[Card] = Card("Li, Huang, Huang 2023; Franceschi et al. 2018", RECONSTRUCTED)

    test: Annotated[float, Gt(0), Lt(1)] = 0.2  # the share of a client's rows that test its classifier

    def build(self, seed: int, num_clients: int, data: Federated | None) -> Task:
        assert data is not None
        left, held = held_out(data.clients, self.test, seed)
        base = super().build(seed, num_clients, data._replace(clients=left))
        assert isinstance(base.problem, HyperRepresentationProblem)
        assert isinstance(base.data, ArrayClients)
        owners = np.zeros(len(data.dataset.train_targets), dtype=np.int64)
        owners[held.order] = np.repeat(np.arange(num_clients), held.size)
        problem = PersonalHeadsProblem(**fields_of(base.problem), owners=as_tensor(owners))
        return Task(problem, base.data, rows_to_test(base.data, data.dataset.train_targets, held))


def fields_of(problem: HyperRepresentationProblem) -> dict[str, Any]:
    """What a problem was made from, without what it has computed since."""
    return {field.name: getattr(problem, field.name) for field in fields(problem)}


def held_out(clients: ArrayClients, share: float, seed: int) -> tuple[ArrayClients, Rows]:
    """The clients without their test rows, and these: a share of each split, of which one row stays at least."""
    kept, held = {}, [np.empty(0, dtype=np.int64)] * clients.num_clients
    for split, rows in clients.splits.items():
        rng, parts = stream(seed, "personal test", split), []
        for client in range(clients.num_clients):
            own = rng.permutation(rows.of_client(client))
            cut = min(round(share * len(own)), len(own) - 1)
            held[client] = np.append(held[client], own[:cut])
            parts.append(own[cut:])
        kept[split] = Rows.of(parts)
    if not sum(map(len, held)):
        raise ConfigError(f"a client must have enough rows for a share of {share} to be one row, but none has", "test")
    return replace(clients, splits=kept), Rows.of(held)


def rows_to_test(clients: ArrayClients, targets: Targets, held: Rows) -> Batch:
    """The test rows of all clients, client after client, with the labels of the data set: noise is for training."""
    sizes = np.repeat(held.size, held.size)
    weights = torch.from_numpy(1 / (sizes * (held.size > 0).sum())).to(clients.dtype)
    batch = clients.take(held.order, weights, torch.device("cpu"))
    return batch._replace(targets=torch.from_numpy(targets[held.order]))


@dataclass(frozen=True)
class PersonalHeadsProblem(HyperRepresentationProblem):
    owners: Tensor  # for each row of the data set, the client that owns it as a test row

    capabilities: ClassVar[Capabilities] = Capabilities(
        stacks=True, layered=True, model=True, personal=True, predicts=True
    )

    def groups(self, test: Batch) -> tuple[list[int], list[int]]:
        """The clients that own the test rows, in the order of the rows, and how many rows each owns."""
        owners, sizes = looked_up(self.owners, test.rows).unique_consecutive(return_counts=True)
        return owners.tolist(), sizes.tolist()

    def predictions(self, x: Tensor, y: Tensor, part: Batch) -> Tensor:
        """The logits of each client's classifier on its own rows: its row of y, or the one y that all share."""
        owners, sizes = self.groups(part)
        own = zip(owners, self.features(x, part.inputs).split(sizes), strict=True)
        return torch.cat([self.upper_head.logits(y[i] if y.dim() == 2 else y, features) for i, features in own])

    def figures(self, x: Tensor, y: Tensor, predictions: Tensor, test: Batch) -> dict[str, float]:
        _, sizes = self.groups(test)
        losses = cross_entropies(predictions, test.targets)
        right = (predictions.argmax(1) == test.targets).to(losses.dtype)
        accuracies = torch.stack([part.mean() for part in right.split(sizes)])
        worst = accuracies.sort().values[: -(-len(accuracies) // 10)]
        return {
            "test_loss": float(test.mean(losses)),
            "test_accuracy": float(accuracies.mean()),
            "worst_tenth_accuracy": float(worst.mean()),
        }
