"""A data set as arrays, and what arrays must be to become one."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmbo_ray.core.errors import ConfigError, choices
from fedmbo_ray.data.held_out import held_out
from fedmbo_ray.data.in_file import InFile
from fedmbo_ray.data.values import AnyArray as AnyArray
from fedmbo_ray.data.values import Inputs, Labels, Targets, as_inputs, as_targets, chunks, numbered


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
            for _, part in chunks(array) if array is not None else ():
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


KEYS = ("inputs", "targets", "clients", "groups", "test_inputs", "test_targets", "test_groups")


def dataset_of(name: str, answer: object, test: float | None) -> Dataset:
    """What a user's function returned, as a Dataset; a ConfigError says what is wrong with it.

    Args:
        name: of the data set.
        answer: a `Dataset`; ``(inputs, targets)`` or ``(inputs, targets, clients)``; or a mapping with `inputs`,
            `targets` and, if there are any, `clients`, `groups`, `test_inputs`, `test_targets`, `test_groups`. Labels,
            clients and groups may be numbers or text.
        test: the fraction of the rows to test on; None for the answer's test rows or, without any, some held out.
    """
    if isinstance(answer, Dataset):
        return answer
    train, rest = _divided(_named(answer), test)
    cut = len(train["targets"])
    targets, classes = as_targets(np.concatenate([train["targets"], rest["targets"]]))
    if classes:
        _require_known(targets[:cut], targets[cut:], classes)
    clients, client_names = numbered(train["clients"]) if "clients" in train else (None, ())
    groups, test_groups = None, None
    group_names: tuple[str, ...] = ()
    if "groups" in train:
        if "groups" not in rest:
            raise ConfigError("groups need test_groups where there are test_inputs")
        both, group_names = numbered(np.concatenate([train["groups"], rest["groups"]]))
        groups, test_groups = both[:cut], both[cut:]
    inputs, test_inputs = train["inputs"], rest["inputs"]
    if inputs.shape[1:] != test_inputs.shape[1:]:
        raise ConfigError(f"test_inputs must have the shape {inputs.shape[1:]} of inputs, not {test_inputs.shape[1:]}")
    return Dataset(
        name,
        inputs,
        targets[:cut],
        test_inputs,
        targets[cut:],
        clients,
        client_names,
        classes,
        groups,
        test_groups,
        group_names,
    )


def _divided(arrays: dict[str, Any], test: float | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays to learn from and those to test on: as they were given, or held out."""
    train = {key: array for key, array in arrays.items() if not key.startswith("test_")}
    _require_rows(train, "")
    train["inputs"] = as_inputs(train["inputs"], "inputs")  # before rows are held out: errors name rows as given
    if "test_inputs" in arrays and test is None:
        rest = {key.removeprefix("test_"): arrays[key] for key in arrays if key.startswith("test_")}
        _require_rows(rest, "test_")
        rest["inputs"] = as_inputs(rest["inputs"], "test_inputs")
        return train, rest
    as_targets(train["targets"])  # what is wrong with all of them is said first
    kept = [train[key] for key in ("targets", "clients") if key in train and train[key].dtype.kind != "f"]
    parts = held_out(len(train["inputs"]), test, *(numbered(column)[0] for column in kept))
    here, there = ({key: _picked(array, rows) for key, array in train.items()} for rows in parts)
    return here, there


def _picked(array: Any, rows: Labels) -> Any:
    """Some rows of an array; those of a file stay there."""
    return array.picked(rows) if isinstance(array, InFile) else array[rows]


def _require_known(labels: Targets, test: Targets, names: tuple[str, ...]) -> None:
    """Raise a ConfigError if there is a label among the test rows alone."""
    unseen = np.setdiff1d(test, labels)
    if len(unseen):
        raise ConfigError(
            f"test rows must have labels that are learned, but {names[int(unseen[0])]!r} is in no row to learn from; "
            "leave such rows out",
            "test",
        )


def _named(answer: object) -> dict[str, Any]:
    """The arrays of an answer by name."""
    if isinstance(answer, tuple | list) and len(answer) in (2, 3):
        answer = dict(zip(KEYS, answer, strict=False))
    if not isinstance(answer, Mapping) or not {"inputs", "targets"} <= set(answer):
        shown = f"a mapping with {', '.join(map(str, answer))}" if isinstance(answer, Mapping) else repr(type(answer))
        raise ConfigError(f"must return (inputs, targets), (inputs, targets, clients) or a mapping, but gave {shown}")
    unknown = next((str(key) for key in answer if key not in KEYS), None)
    if unknown is not None:
        raise ConfigError(f"unknown array {unknown!r}; {choices(unknown, list(KEYS))}")
    return {
        str(key): array if isinstance(array, InFile) else np.asarray(array)
        for key, array in answer.items()
        if array is not None
    }


def _require_rows(arrays: dict[str, Any], prefix: str) -> None:
    """Raise a ConfigError unless all arrays of a part have as many rows as its inputs."""
    if "targets" not in arrays:
        raise ConfigError("test_inputs need test_targets")
    for key, array in arrays.items():
        if array.ndim == 0 or len(array) != len(arrays["inputs"]):
            rows = f"{prefix}inputs have {len(arrays['inputs'])} rows"
            raise ConfigError(f"{rows}, but {prefix}{key.removeprefix(prefix)} has the shape {array.shape}")
