"""Data sets made from the embedded digits, for problems that need more than labels; configs name these functions."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.dataset import Dataset
from fedmbo_ray.data.images import digits

UPRIGHT, TURNED = 0, 1


def turned_digits(share: float = 0.1) -> Dataset:
    """Digits in two groups with the labels "below five" and "five or more"; those of the smaller group are upside down.

    Args:
        share: of the rows that are upside down.

    Example:
        >>> data = turned_digits()
        >>> data.num_classes, data.group_names, float(data.groups.mean().round(1))
        (2, ('upright', 'upside down'), 0.1)
    """
    data, rng = digits(Path()), stream(0, "turned digits")
    images, groups = [], []
    for inputs in (data.train_inputs, data.test_inputs):
        turned = rng.random(len(inputs)) < share
        images.append(np.where(turned[:, None, None, None], inputs[:, :, ::-1, ::-1], inputs))
        groups.append(np.where(turned, TURNED, UPRIGHT).astype(np.int64))
    labels = [(targets >= 5).astype(np.int64) for targets in (data.train_targets, data.test_targets)]
    return Dataset(
        "turned_digits",
        images[0],
        labels[0],
        images[1],
        labels[1],
        class_names=("below five", "five or more"),
        groups=groups[0],
        test_groups=groups[1],
        group_names=("upright", "upside down"),
    )


def noisy_digits(copies: int = 3) -> Dataset:
    """Digits with useless pixels beside them: copies of the image in which each pixel is shuffled over all rows.

    A useless pixel has the values of a real one, but says nothing of the label. Of the 8 × 8·(copies + 1) pixels of an
    input, the first eight columns are the digit.

    Example:
        >>> data = noisy_digits()
        >>> data.shape, data.num_classes
        ((1, 8, 32), 10)
    """
    data, rng = digits(Path()), stream(0, "noisy digits")
    images = [
        np.concatenate([inputs, *(rng.permuted(inputs, axis=0) for _ in range(copies))], axis=3)
        for inputs in (data.train_inputs, data.test_inputs)
    ]
    return replace(data, name="noisy_digits", train_inputs=images[0], test_inputs=images[1])
