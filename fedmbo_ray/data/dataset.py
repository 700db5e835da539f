"""A data set as arrays, and what arrays must be to become one."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray.core.errors import ConfigError, choices
from fedmbo_ray.core.rng import stream

Inputs = NDArray[np.uint8] | NDArray[np.floating] | NDArray[np.int64]
Targets = NDArray[np.int64] | NDArray[np.floating]
Labels = NDArray[np.int64]
Array = NDArray[Any]

CHUNK = 65_536  # rows looked at together


class About(NamedTuple):
    """What the catalogue says of a data set before it is loaded.

    Args:
        train: the number of rows to learn from.
        test: the number of rows to test on.
        shape: of one input.
        classes: how many labels there are; 0 for regression.
        files: what is downloaded; nothing if it is embedded.
        clients: how many clients own the rows; None if they belong to nobody.
        licence: the licence or terms of the data, and whose they are.
        source: where it comes from: the paper or the institution, and the package that carries it.
    """

    train: int
    test: int
    shape: tuple[int, ...]
    classes: int
    files: tuple[str, ...] = ()
    clients: int | None = None
    licence: str = ""
    source: str = ""

    def kept(self, folder: Path) -> bool:
        """Whether all its files are in a folder; whether they are right is found out when they are read."""
        return all((folder / name).is_file() for name in self.files)


@dataclass(frozen=True)
class Dataset:
    """Rows to learn from and rows to test on.

    Args:
        name: what figures and tables call it.
        train_inputs: of shape (rows, ...): bytes (images), floats (features), or 64-bit integers (tokens).
        train_targets: labels 0, …, C−1 as integers, or floats for regression.
        test_inputs: as `train_inputs`.
        test_targets: as `train_targets`.
        clients: whose row each training row is, 0, …, m−1; None if the rows belong to nobody.
        client_names: what the clients are called.
        class_names: what the labels are called.
        groups: the group of each training row, 0, …, A−1, for problems about fairness.
        test_groups: that of each test row.
        group_names: what the groups are called.
    """

    name: str
    train_inputs: Inputs
    train_targets: Targets
    test_inputs: Inputs
    test_targets: Targets
    clients: Labels | None = None
    client_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    groups: Labels | None = None
    test_groups: Labels | None = None
    group_names: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        """C; 0 for regression."""
        return int(self.train_targets.max()) + 1 if self.train_targets.dtype.kind == "i" else 0

    @property
    def num_clients(self) -> int | None:
        """How many clients own the rows; None if nobody does."""
        return None if self.clients is None else int(self.clients.max()) + 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return self.train_inputs.shape[1:]

    @property
    def digest(self) -> str:
        """SHA-256 of all its bytes."""
        digest = sha256()
        parts = (self.train_inputs, self.train_targets, self.test_inputs, self.test_targets)
        for array in (*parts, self.clients, self.groups, self.test_groups):
            if array is not None:
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


KEYS = ("inputs", "targets", "clients", "groups", "test_inputs", "test_targets", "test_groups")


def dataset_of(name: str, answer: object, test: float) -> Dataset:
    """What a user's function returned, as a Dataset; a ConfigError says what is wrong with it.

    Args:
        name: of the data set.
        answer: a `Dataset`; ``(inputs, targets)`` or ``(inputs, targets, clients)``; or a mapping with `inputs`,
            `targets` and, if there are any, `clients`, `groups`, `test_inputs`, `test_targets`, `test_groups`. Labels,
            clients and groups may be numbers or text.
        test: the fraction of the rows to test on, if the answer has no test rows.
    """
    if isinstance(answer, Dataset):
        return answer
    arrays = _named(answer)
    if "test_inputs" in arrays:
        train, rest = arrays, {key.removeprefix("test_"): arrays[key] for key in arrays if key.startswith("test_")}
    else:
        _require_rows(arrays, "")
        here, there = held_out(len(arrays["inputs"]), test)
        train, rest = ({key: array[rows] for key, array in arrays.items()} for rows in (here, there))
    _require_rows(train, "")
    _require_rows(rest, "test_")
    cut = len(train["targets"])
    targets, classes = as_targets(np.concatenate([train["targets"], rest["targets"]]))
    clients, client_names = numbered(train["clients"]) if "clients" in train else (None, ())
    groups, test_groups = None, None
    group_names: tuple[str, ...] = ()
    if "groups" in train:
        both, group_names = numbered(np.concatenate([train["groups"], rest["groups"]]))
        groups, test_groups = both[:cut], both[cut:]
    return Dataset(
        name,
        as_inputs(train["inputs"], "inputs"),
        targets[:cut],
        as_inputs(rest["inputs"], "test_inputs"),
        targets[cut:],
        clients,
        client_names,
        classes,
        groups,
        test_groups,
        group_names,
    )


def held_out(rows: int, test: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows to learn from and those to test on, the same in every run: the seed of a run does not matter."""
    if rows < 3:
        raise ConfigError(f"`rows >= 3` must hold, but there are {rows}")
    order = stream(0, "test rows").permutation(rows)
    cut = min(max(round(test * rows), 1), rows - 2)
    return np.sort(order[cut:]), np.sort(order[:cut])


def as_inputs(inputs: Array, what: str) -> Inputs:
    """Bytes, floats or 64-bit integers; a ConfigError names the first value that is not a finite number."""
    if inputs.ndim < 2:
        raise ConfigError(f"{what} must have the shape (rows, ...), but have {inputs.shape}; a column is (rows, 1)")
    kind = inputs.dtype.kind
    if kind == "u" and inputs.dtype.itemsize == 1:
        return inputs
    if kind == "b":
        return inputs.astype(np.float32)
    if kind in "iu":
        return inputs.astype(np.int64)
    if kind != "f":
        raise ConfigError(f"{what} must be bytes, floats or integers, but are {inputs.dtype}; encode text as numbers")
    for start in range(0, len(inputs), CHUNK):  # no copy of the whole
        wrong = np.argwhere(~np.isfinite(inputs[start : start + CHUNK]))
        if len(wrong):
            place = (start + int(wrong[0][0]), *map(int, wrong[0][1:]))
            rule = f"{what} must be finite numbers, but {what}[{', '.join(map(str, place))}] is {inputs[place]}"
            raise ConfigError(f"{rule}; fill missing values in, or drop their rows")
    return inputs if inputs.dtype.itemsize in (4, 8) else inputs.astype(np.float32)


def as_targets(targets: Array) -> tuple[Targets, tuple[str, ...]]:
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
            "give numbers to predict as floats"
        )
    return labels, names


def numbered(column: Array) -> tuple[Labels, tuple[str, ...]]:
    """The values of a column as 0, 1, … in sorted order, and what they were."""
    if column.ndim != 1:
        raise ConfigError(f"labels, clients and groups must have the shape (rows,), but got {column.shape}")
    kinds, numbers = np.unique(column.astype(str) if column.dtype.kind in "OSU" else column, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(kind) for kind in kinds)


def _named(answer: object) -> dict[str, Array]:
    """The arrays of an answer by name."""
    if isinstance(answer, tuple | list) and len(answer) in (2, 3):
        answer = dict(zip(KEYS, answer, strict=False))
    if not isinstance(answer, Mapping) or not {"inputs", "targets"} <= set(answer):
        shown = f"a mapping with {', '.join(map(str, answer))}" if isinstance(answer, Mapping) else repr(type(answer))
        raise ConfigError(f"must return (inputs, targets), (inputs, targets, clients) or a mapping, but gave {shown}")
    unknown = next((str(key) for key in answer if key not in KEYS), None)
    if unknown is not None:
        raise ConfigError(f"unknown array {unknown!r}; {choices(unknown, list(KEYS))}")
    return {str(key): np.asarray(array) for key, array in answer.items() if array is not None}


def _require_rows(arrays: dict[str, Array], prefix: str) -> None:
    """Raise a ConfigError unless all arrays of a part have as many rows as its inputs."""
    if "targets" not in arrays:
        raise ConfigError("test_inputs need test_targets")
    for key, array in arrays.items():
        if array.ndim == 0 or len(array) != len(arrays["inputs"]):
            rows = f"{prefix}inputs have {len(arrays['inputs'])} rows"
            raise ConfigError(f"{rows}, but {prefix}{key.removeprefix(prefix)} has the shape {array.shape}")
