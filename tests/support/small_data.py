"""Small data sets of arrays: numbers to predict, and rows in groups."""

from typing import Any

import numpy as np

from fedmbo_ray.core.rng import stream


def numbers() -> tuple[np.ndarray, np.ndarray]:
    """300 rows of 6 features, and a curved function of them with noise."""
    rng = stream(0, "numbers")
    inputs = rng.standard_normal((300, 6))
    return inputs, 3 + 2 * np.tanh(inputs[:, 0]) + inputs[:, 1] ** 2 + 0.1 * rng.standard_normal(300)


def groups() -> dict[str, Any]:
    """400 rows of 5 features in three groups of unequal size, whose labels (three) depend on them differently."""
    rng = stream(0, "groups")
    inputs, of = rng.standard_normal((400, 5)), rng.choice(3, size=400, p=[0.6, 0.3, 0.1])
    scores = np.stack([inputs[:, 0], inputs[np.arange(400), 1 + of], np.zeros(400)], 1)
    return {"inputs": inputs, "targets": scores.argmax(1), "groups": of}


def many_to_test() -> dict[str, Any]:
    """200 rows of 40 features to learn from and 2300 to test on, in four classes."""
    rng = stream(0, "many to test")
    inputs = rng.standard_normal((2500, 40)).astype(np.float32)
    targets = inputs[:, :4].argmax(1)
    return {
        "inputs": inputs[2300:],
        "targets": targets[2300:],
        "test_inputs": inputs[:2300],
        "test_targets": targets[:2300],
    }
