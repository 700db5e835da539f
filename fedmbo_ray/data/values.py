"""What the values of arrays must be to become a data set."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.data.in_file import InFile

Inputs = NDArray[np.uint8] | NDArray[np.floating] | NDArray[np.int64] | InFile
Targets = NDArray[np.int64] | NDArray[np.floating]
Labels = NDArray[np.int64]
AnyArray = NDArray[Any]

CHUNK = 2**24  # bytes looked at together


def chunks(inputs: Any) -> Iterator[tuple[int, AnyArray]]:
    """The rows of a large array in parts, each with the number of its first row: there is no copy of the whole."""
    rows = max(CHUNK * len(inputs) // max(inputs.size * inputs.dtype.itemsize, 1), 1)
    for start in range(0, len(inputs), rows):
        yield start, inputs[start : start + rows]


def as_inputs(inputs: Any, what: str) -> Inputs:
    """Bytes, floats or 64-bit integers; a ConfigError names the first value that is not a finite number."""
    if inputs.ndim < 2:
        raise ConfigError(f"{what} must have the shape (rows, ...), but have {inputs.shape}; a column is (rows, 1)")
    kind = inputs.dtype.kind
    if kind == "u" and inputs.dtype.itemsize == 1:
        return inputs
    if kind == "b":
        return inputs.astype(np.float32)
    if kind in "iu":
        return inputs if inputs.dtype == np.int64 else inputs.astype(np.int64)
    if kind != "f":
        raise ConfigError(f"{what} must be bytes, floats or integers, but are {inputs.dtype}; encode text as numbers")
    for start, part in chunks(inputs):
        wrong = np.argwhere(~np.isfinite(part))
        if len(wrong):
            place = (start + int(wrong[0][0]), *map(int, wrong[0][1:]))
            rule = f"{what} must be finite numbers, but {what}[{', '.join(map(str, place))}] is {inputs[place]}"
            raise ConfigError(f"{rule}; fill missing values in, or drop their rows")
    return inputs if inputs.dtype.itemsize in (4, 8) else inputs.astype(np.float32)


def as_targets(targets: AnyArray) -> tuple[Targets, tuple[str, ...]]:
    """Labels as 0, …, C−1 with their names, or floats for regression.

    Integers and text are labels; floats are numbers to predict, unless they are whole and few.
    """
    if targets.ndim != 1:
        raise ConfigError(f"targets must have the shape (rows,), but have {targets.shape}")
    if targets.dtype.kind == "f":
        wrong = np.flatnonzero(~np.isfinite(targets))
        if len(wrong):
            raise ConfigError(f"targets must be finite, but targets[{wrong[0]}] is {targets[wrong[0]]}; drop such rows")
        if targets.min() == targets.max():
            raise ConfigError(f"targets must differ, but all are {targets[0]:g}")
        return targets.astype(np.float64), ()
    labels, names = numbered(targets)
    if len(names) < 2:
        raise ConfigError(f"targets must have two labels or more, but all are {names[0]!r}")
    if len(names) > len(targets) // 2:
        raise ConfigError(
            f"labels must repeat, but {len(names)} of {len(targets)} targets differ (the first is {names[0]!r}); "
            "give numbers to predict as floats, or set data.predict=numbers for a file"
        )
    return labels, names


def numbered(column: AnyArray) -> tuple[Labels, tuple[str, ...]]:
    """The values of a column as 0, 1, … in sorted order, and what they were."""
    if column.ndim != 1:
        raise ConfigError(f"labels, clients and groups must have the shape (rows,), but got {column.shape}")
    kinds, numbers = np.unique(column.astype(str) if column.dtype.kind in "OSU" else column, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(kind) for kind in kinds)
