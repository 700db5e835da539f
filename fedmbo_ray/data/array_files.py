"""Arrays of users' own in numpy's files."""

import zipfile
from pathlib import Path

import numpy as np

from fedmbo_ray.core.errors import ConfigError, choices, first_line
from fedmbo_ray.data.dataset import AnyArray, Dataset
from fedmbo_ray.data.in_file import InFile, at_offset, in_archive
from fedmbo_ray.data.reading import Source, existing_file, finished

ARRAYS = (".npz", ".npy")
# What arrays may be called, besides by their own names.
NAMES = {
    "inputs": ("inputs", "X", "x", "X_train", "x_train"),
    "targets": ("targets", "y", "Y", "y_train", "labels"),
    "clients": ("clients",),
    "groups": ("groups",),
    "test_inputs": ("test_inputs", "X_test", "x_test"),
    "test_targets": ("test_targets", "y_test"),
    "test_groups": ("test_groups",),
}
ROLES = {"target": "targets", "client": "clients", "group": "groups"}  # the keys of a config that name an array


def read_arrays(source: Source) -> Dataset:
    """The data set in an npz file, or in several npy files."""
    if source.place.suffix.lower() == ".npy":
        return finished(source, single_arrays(source))
    arrays = arrays_of(source.place, source, "path")
    if isinstance(source.test, Path):
        rest = arrays_of(source.test, source, "test")
        arrays |= {f"test_{key}": array for key, array in rest.items() if key in ("inputs", "targets", "groups")}
    return finished(source, arrays)


def single_arrays(source: Source) -> dict[str, AnyArray | InFile]:
    """The inputs in an npy file, and targets, clients and groups in others next to it, which the config names."""
    if source.target is None:
        raise ConfigError("is required: the npy file of the targets, next to data.path", "target")
    if isinstance(source.test, Path):
        raise ConfigError("must be a fraction of the rows for npy files", "test")
    arrays: dict[str, AnyArray | InFile] = {}
    for role, name, key in (("inputs", source.place.name, "path"), *((ROLES[k], getattr(source, k), k) for k in ROLES)):
        if name is not None:
            path = existing_file(source.place.parent / name, key)
            try:
                arrays[role] = at_offset(path) or np.load(path, allow_pickle=False)
            except (OSError, ValueError) as error:
                raise ConfigError(f"{path} can't be read as an array: {first_line(error)}", key) from None
    return arrays


def arrays_of(path: Path, source: Source, key: str) -> dict[str, AnyArray | InFile]:
    """The arrays in a file, by what they are."""
    try:
        with np.load(existing_file(path, key), allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ConfigError(f"must hold named arrays (np.savez), but {path} holds a single one", key)
            return {role: array_in(path, file, name, key) for role, name in named(list(file), source, key).items()}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path} can't be read as arrays: {first_line(error)}", key) from None


def array_in(path: Path, file: np.lib.npyio.NpzFile, name: str, key: str) -> AnyArray | InFile:
    """One array; a ConfigError if it is made of Python objects, which could run any program."""
    try:
        return in_archive(path, name) or file[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise ConfigError(
            f"arrays must be numbers or text, but {name!r} is of Python objects; save it .astype(str) or (float)",
            key,
        ) from None


def named(there: list[str], source: Source, key: str) -> dict[str, str]:
    """What each array of a file is: those that the config names, then those with a name that is known."""
    found: dict[str, str] = {}
    for field, role in ROLES.items():
        name = getattr(source, field)
        if name is not None:
            if name not in there:
                raise ConfigError(f"unknown array {name!r}; {choices(name, there)}", field if key == "path" else key)
            found[role] = name
    for role, names in NAMES.items():
        other = next((name for name in names if name in there and name not in found.values()), None)
        if role not in found and other is not None:
            found[role] = other
    for role in ("inputs", "targets"):
        if role not in found:
            rule = f"must have an array called {', '.join(NAMES[role])}, but has {', '.join(there) or 'none'}"
            raise ConfigError(f"{rule}; or name it: data.target" if role == "targets" else rule, key)
    unused = next((name for name in there if name not in found.values()), None)
    if unused is not None:
        raise ConfigError(f"unknown array {unused!r}; {choices(unused, list(NAMES))}", key)
    return found
