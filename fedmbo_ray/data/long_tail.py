"""Classes thinned to a long tail, for problems about imbalanced data."""

from dataclasses import replace

import numpy as np

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.data.dataset import Dataset

FEWEST = 2  # rows of a class that are kept, if it has them: one to train, one to validate


def thinned(data: Dataset, imbalance: float, rng: np.random.Generator) -> Dataset:
    """The data set with a share of imbalance^(−c/(C−1)) of the training rows of class c = 0, …, C−1; all test rows.

    The profile of Cui et al. 2019. If classes are of equal size at first, the first one ends with `imbalance` times the
    rows of the last.
    """
    if imbalance == 1:
        return data
    if not data.num_classes:
        raise ConfigError(f"needs labels to thin, but the targets of {data.name} are numbers", "imbalance")
    order, kept = rng.permutation(len(data.train_targets)), []
    for kind in range(data.num_classes):
        own = order[data.train_targets[order] == kind]
        share = imbalance ** (-kind / (data.num_classes - 1))
        kept.append(own[: max(round(share * len(own)), FEWEST)])
    rows = np.sort(np.concatenate(kept))
    return replace(
        data,
        train_inputs=data.train_inputs[rows],
        train_targets=data.train_targets[rows],
        clients=None if data.clients is None else data.clients[rows],
        groups=None if data.groups is None else data.groups[rows],
    )
