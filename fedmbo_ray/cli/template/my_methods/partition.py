"""Template of a partition: a class with ``split(data, num_clients, rng)``, which returns the rows of each client."""

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray import Dataset, settings


@settings
class Halves:
    """Half of the clients get the even labels, the others the odd ones."""

    def split(self, data: Dataset, num_clients: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        labels = data.train_targets
        rows = rng.permutation(len(labels))
        even, odd = rows[labels[rows] % 2 == 0], rows[labels[rows] % 2 == 1]
        half = num_clients // 2
        return [*np.array_split(even, half), *np.array_split(odd, num_clients - half)]
