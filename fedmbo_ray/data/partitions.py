"""Ways to distribute a data set over m clients; no row goes to two clients."""

from typing import Annotated, ClassVar, Protocol

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from fedmbo_ray.core.cards import PAPER, STANDARD, Card
from fedmbo_ray.core.components import Component
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.core.settings import Count, Positive, settings
from fedmbo_ray.data.array_clients import Rows
from fedmbo_ray.data.dataset import Dataset, Labels

RowsPerClient = list[NDArray[np.int64]]


class Partition(Protocol):
    def split(self, data: Dataset, num_clients: int, rng: np.random.Generator) -> RowsPerClient:
        """The training rows of each client, in random order."""
        ...


def labels_of(data: Dataset) -> Labels:
    """The labels of the training rows; a ConfigError if the targets are numbers."""
    if not data.num_classes:
        raise ConfigError(f"needs labels, but the targets of {data.name} are numbers; use iid, quantity or natural")
    return data.train_targets.astype(np.int64, copy=False)


@settings
class IID:
    """Shuffled and cut into equal parts."""

    card: ClassVar[Card] = Card("textbook", STANDARD)

    def split(self, data: Dataset, num_clients: int, rng: np.random.Generator) -> RowsPerClient:
        return np.array_split(rng.permutation(len(data.train_targets)), num_clients)


@settings
class Natural:
    """Every client has the rows that are its own in the data set: a hospital, a school, a speaker."""

    card: ClassVar[Card] = Card("the data set itself", STANDARD)

    def split(self, data: Dataset, num_clients: int, rng: np.random.Generator) -> RowsPerClient:
        if data.clients is None:
            raise ConfigError(f"the rows of {data.name} belong to no clients; name their column, or use iid")
        if num_clients != data.num_clients:
            raise ConfigError(
                f"{data.name} has {data.num_clients} clients, but clients.num_clients is {num_clients}; "
                f"set clients.num_clients={data.num_clients}"
            )
        order = rng.permutation(len(data.clients))
        sorted_ = order[np.argsort(data.clients[order], kind="stable")]
        rows = np.split(sorted_, np.cumsum(np.bincount(data.clients, minlength=num_clients))[:-1])
        poor = next((client for client, own in enumerate(rows) if len(own) < 2), None)
        if poor is not None:
            name = data.client_names[poor] if data.client_names else str(poor)
            raise ConfigError(
                f"every client needs two rows or more, one to train and one to validate, but client {name!r} of "
                f"{data.name} has {len(rows[poor])} left to train on; leave such clients out of the data"
            )
        return rows


@settings
class Quantity:
    """Every client has the same mix of rows, but sizes differ: they are in proportions from a Dirichlet distribution.

    Each client gets at least `min_rows` rows; the rest is dealt by the proportions.
    """

    card: ClassVar[Card] = Card("Li, Diao, Chen, He 2022", STANDARD)

    alpha: Positive = 0.5
    min_rows: Annotated[int, Ge(2)] = 2

    def split(self, data: Dataset, num_clients: int, rng: np.random.Generator) -> RowsPerClient:
        free = len(data.train_targets) - num_clients * self.min_rows
        if free < 0:
            raise ConfigError(
                f"every client must get min_rows={self.min_rows} rows, but {len(data.train_targets)} rows are too few "
                f"for {num_clients} clients"
            )
        shares = np.cumsum(rng.dirichlet(np.full(num_clients, self.alpha)))[:-1]
        cuts = np.round(shares * free).astype(int) + self.min_rows * np.arange(1, num_clients)
        return np.split(rng.permutation(len(data.train_targets)), cuts)


@settings
class ByDigits:
    """Every client has exactly `digits` labels, and every label about equally many clients (the paper's case study)."""

    card: ClassVar[Card] = Card("Huang, Zhang, Ji 2023 (FedMBO)", PAPER)

    digits: Count = 2

    def split(self, data: Dataset, num_clients: int, rng: np.random.Generator) -> RowsPerClient:
        labels = labels_of(data)
        kinds = np.unique(labels)
        if self.digits > len(kinds):
            raise ConfigError(
                f"`digits <= {len(kinds)}` (labels in the data) must hold, but got {self.digits}", "digits"
            )
        owners: list[list[int]] = [[] for _ in kinds]
        for client in rng.permutation(num_clients):
            load = np.array([len(each) for each in owners]) + rng.random(len(kinds))
            for kind in np.argsort(load)[: self.digits]:
                owners[kind].append(client)
        rows: list[list[NDArray[np.int64]]] = [[] for _ in range(num_clients)]
        for kind, clients in zip(kinds, owners, strict=True):
            if not clients:
                continue
            own = rng.permutation(np.flatnonzero(labels == kind))
            if len(own) < len(clients):
                raise ConfigError(
                    f"`rows of a label >= clients that own it` must hold, but label {kind} has {len(own)} rows "
                    f"for {len(clients)} clients; use fewer clients or fewer digits per client"
                )
            for client, part in zip(clients, np.array_split(own, len(clients)), strict=True):
                rows[client].append(part)
        return [rng.permutation(np.concatenate(parts)) for parts in rows]


@settings
class SortedShards:
    """Sorted by label, cut into m·shards equal parts, `shards` of them dealt to each client.

    One shard is the paper's comparison, two are FedNest's split.
    """

    card: ClassVar[Card] = Card("Huang, Zhang, Ji 2023 (FedMBO)", PAPER)

    shards: Count = 1

    def split(self, data: Dataset, num_clients: int, rng: np.random.Generator) -> RowsPerClient:
        labels = labels_of(data)
        shuffled = rng.permutation(len(labels))
        ordered = shuffled[np.argsort(labels[shuffled], kind="stable")]
        parts = np.array_split(ordered, num_clients * self.shards)
        hands = rng.permutation(len(parts)).reshape(num_clients, self.shards)
        return [rng.permutation(np.concatenate([parts[i] for i in hand])) for hand in hands]


@settings
class Dirichlet:
    """Each label is distributed over the clients in proportions from a symmetric Dirichlet distribution.

    Sizes of clients differ, too. Drawn anew, up to a hundred times, until every client has `min_rows` rows.
    `class_mix` is the other scheme of that name.
    """

    card: ClassVar[Card] = Card("Yurochkin et al. 2019", STANDARD)

    alpha: Positive = 0.5
    min_rows: Annotated[int, Ge(2)] = 2

    def split(self, data: Dataset, num_clients: int, rng: np.random.Generator) -> RowsPerClient:
        labels, fewest = labels_of(data), 0
        for _ in range(100):
            parts = self._attempt(labels, num_clients, rng)
            smallest = min(len(rows) for rows in parts)
            if smallest >= self.min_rows:
                return [rng.permutation(rows) for rows in parts]
            fewest = max(fewest, smallest)
        raise ConfigError(
            f"every client must get min_rows={self.min_rows} rows, but in 100 draws with alpha={self.alpha} and "
            f"{num_clients} clients the poorest got at most {fewest}; use a larger alpha or fewer clients"
        )

    def _attempt(self, labels: Labels, num_clients: int, rng: np.random.Generator) -> RowsPerClient:
        parts: list[list[NDArray[np.int64]]] = [[] for _ in range(num_clients)]
        for kind in np.unique(labels):
            own = rng.permutation(np.flatnonzero(labels == kind))
            shares = rng.dirichlet(np.full(num_clients, self.alpha))
            cuts = np.round(np.cumsum(shares)[:-1] * len(own)).astype(int)
            for mine, part in zip(parts, np.split(own, cuts), strict=True):
                mine.append(part)
        return [np.concatenate(mine) for mine in parts]


@settings
class ClassMix:
    """Each client draws a mix of labels from a Dirichlet distribution around that of all rows; sizes are equal.

    Rows are dealt without replacement: where those of a label are used up, the rest of the mix is scaled up.
    """

    card: ClassVar[Card] = Card("Hsu, Qi, Brown 2019", STANDARD)

    alpha: Positive = 0.5

    def split(self, data: Dataset, num_clients: int, rng: np.random.Generator) -> RowsPerClient:
        labels = labels_of(data)
        piles = [list(rng.permutation(np.flatnonzero(labels == kind))) for kind in range(data.num_classes)]
        prior = np.array([len(pile) for pile in piles]) / len(labels)
        mixes = np.array([rng.dirichlet(np.maximum(self.alpha * prior, 1e-9)) for _ in range(num_clients)])
        rows: list[list[int]] = [[] for _ in range(num_clients)]
        for _ in range(len(labels) // num_clients):  # in turns, so that no client is left with what others did not want
            for client in rng.permutation(num_clients):
                left = np.array([len(pile) > 0 for pile in piles]) * mixes[client]
                left = left if left.sum() > 0 else np.array([float(len(pile)) for pile in piles])
                rows[client].append(piles[rng.choice(len(piles), p=left / left.sum())].pop())
        return [rng.permutation(np.array(own, dtype=np.int64)) for own in rows]


PARTITIONS = Registry(
    "partition",
    "partitions",
    Partition,
    {
        "iid": IID,
        "natural": Natural,
        "by_digits": ByDigits,
        "sorted_shards": SortedShards,
        "dirichlet": Dirichlet,
        "class_mix": ClassMix,
        "quantity": Quantity,
    },
)

AnyPartition = Annotated[Partition, Component(PARTITIONS)]


def train_and_validation(rows: RowsPerClient, validation: float) -> tuple[Rows, Rows]:
    """Every client's rows cut in two; each part keeps at least one row."""
    poorest = min(len(own) for own in rows)
    if poorest < 2:
        raise ConfigError(
            f"every client needs a row to train and one to validate, but of {sum(map(len, rows))} rows for "
            f"{len(rows)} clients the poorest client got {poorest}; use fewer clients or another partition"
        )
    cuts = [min(max(round(validation * len(own)), 1), len(own) - 1) for own in rows]
    train = Rows.of([own[cut:] for own, cut in zip(rows, cuts, strict=True)])
    return train, Rows.of([own[:cut] for own, cut in zip(rows, cuts, strict=True)])
