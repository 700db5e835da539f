"""Dimensions of a search: mappings such as ``{loguniform: [0.01, 1]}`` in place of a value of a config."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmbo_ray.config.schema import Fields
from fedmbo_ray.core.components import is_number
from fedmbo_ray.core.errors import ConfigError, choices, quoted

SweepPoint = Fields  # a value for every dimension, by its key path
if TYPE_CHECKING:
    from ray.tune.search.sample import Domain

    Space = dict[str, dict[str, Domain]]  # the dimensions as Ray Tune has them

BOUNDS = ("uniform", "loguniform", "randint", "lograndint", "quniform", "qloguniform")
LISTS = ("grid", "zip", "choice")
MOST_POINTS = 100_000
KINDS = (*LISTS, *BOUNDS)


@dataclass(frozen=True)
class Dimension:
    """One key of a config that a sweep varies."""

    path: str  # key.path
    kind: str
    values: tuple[Any, ...]  # those to choose from, or bounds (and a quantum)

    @property
    def counted(self) -> bool:
        """Whether a sweep goes through all values, rather than drawing some."""
        return self.kind in ("grid", "zip")

    def draw(self, rng: np.random.Generator) -> object:
        """A value at random."""
        if self.kind in LISTS:
            return self.values[int(rng.integers(len(self.values)))]
        low, high = self.values[:2]
        logarithmic = "log" in self.kind
        u = rng.uniform(math.log(low), math.log(high)) if logarithmic else rng.uniform(low, high)
        value = math.exp(u) if logarithmic else u
        if "int" in self.kind:
            return min(math.floor(value), high - 1)
        return round(value / self.values[2]) * self.values[2] if self.kind.startswith("q") else value

    def extremes(self) -> tuple[object, ...]:
        """Values that a config must be able to take, if it can take any in between."""
        if self.kind in LISTS:
            return self.values
        low, high = self.values[:2]
        return (low, high - 1) if "int" in self.kind else (low, high)


def dimension(path: str, kind: str, given: object) -> Dimension:
    """The dimension that ``path: {kind: given}`` stands for; raises ConfigError."""
    keys = (*path.split("."), kind)
    if kind not in BOUNDS:
        if not isinstance(given, list) or not given:
            raise ConfigError(f"must be a list of values, but got {quoted(given)}", *keys)
        given = [as_number(value) for value in given]
        if kind != "zip" and any(value in given[:i] for i, value in enumerate(given)):
            raise ConfigError(f"must list each value once, but got {quoted(given)}", *keys)
        return Dimension(path, kind, tuple(given))
    names = "[low, high, quantum]" if kind.startswith("q") else "[low, high]"
    if not isinstance(given, list) or len(given) != names.count(",") + 1 or not all(map(is_number, given)):
        raise ConfigError(f"must be {names}, but got {quoted(given)}", *keys)
    bounds = tuple(float(value) for value in given)
    if "int" in kind:
        if any(value != round(value) for value in bounds):
            raise ConfigError(f"must have integer bounds, but got {quoted(given)}", *keys)
        bounds = tuple(int(value) for value in bounds)
    if not all(map(math.isfinite, bounds)) or not bounds[0] < bounds[1] or min(bounds[2:], default=1) <= 0:
        raise ConfigError(f"`low < high` must hold, and quantum > 0, but got {quoted(given)}", *keys)
    if kind.startswith("q") and any(abs(bound / bounds[2] - round(bound / bounds[2])) > 1e-9 for bound in bounds[:2]):
        raise ConfigError(f"bounds must be multiples of the quantum, but got {quoted(given)}", *keys)
    if "log" in kind and bounds[0] <= 0:
        raise ConfigError(f"`low > 0` must hold on a logarithmic scale, but got {quoted(given)}", *keys)
    return Dimension(path, kind, bounds)


def as_number(value: object) -> object:
    """Text such as 1e-3, which YAML does not take for a number, as the number that it is; other values as they are."""
    if not isinstance(value, str) or not is_number(value) or not math.isfinite(float(value)):
        return value
    return int(value) if value.lstrip("+-").isdecimal() else float(value)


def dimensions(fields: object, path: str = "") -> Iterator[Dimension]:
    """Those in a config, in the order in which they stand there."""
    if not isinstance(fields, dict):
        return
    for key, value in fields.items():
        here = f"{path}{key}"
        if isinstance(value, dict) and len(value) == 1 and (kind := str(next(iter(value)))) in KINDS:
            yield dimension(here, kind, value[kind])
        else:
            yield from dimensions(value, f"{here}.")


def placed(fields: Fields, point: SweepPoint) -> Fields:
    """The config with the point's values in place of its dimensions."""
    return _placed(fields, point, "")


def _placed(fields: Fields, point: SweepPoint, path: str) -> Fields:
    return {
        key: point[f"{path}{key}"]
        if f"{path}{key}" in point
        else _placed(value, point, f"{path}{key}.")
        if isinstance(value, dict)
        else value
        for key, value in fields.items()
    }


def axes(dims: list[Dimension]) -> list[list[SweepPoint]]:
    """What is to be gone through: each grid by itself, all zips together."""
    zips = [each for each in dims if each.kind == "zip"]
    if len({len(each.values) for each in zips}) > 1:
        lengths = ", ".join(f"{each.path} has {len(each.values)}" for each in zips)
        raise ConfigError(f"zips are combined, so all must have the same number of values, but {lengths}")
    together = [
        dict(zip((each.path for each in zips), row, strict=True)) for row in zip(*(z.values for z in zips), strict=True)
    ]
    return [
        together if each.kind == "zip" else [{each.path: value} for value in each.values]
        for each in dims
        if each.kind == "grid" or each in zips[:1]
    ]


def grid(dims: list[Dimension], samples: int, rng: np.random.Generator) -> list[SweepPoint]:
    """All combinations of what is to be gone through; with each, `samples` draws of everything else."""
    count = samples * math.prod(map(len, axes(dims)))
    if count > MOST_POINTS:
        raise ConfigError(f"a sweep has {MOST_POINTS} points at most, but got {count}; use fewer samples or values")
    points = []
    for _ in range(samples):
        for parts in itertools.product(*axes(dims)):
            chosen = {path: value for part in parts for path, value in part.items()}
            points.append({each.path: chosen[each.path] if each.counted else each.draw(rng) for each in dims})
    return points


def corners(dims: list[Dimension]) -> Iterator[SweepPoint]:
    """Points that show whether a config takes every dimension's values: each dimension's extremes, one by one."""
    sides = axes(dims) + [[{each.path: value} for value in each.extremes()] for each in dims if not each.counted]
    first = {path: value for side in sides for path, value in side[0].items()}
    yield first
    for side in sides:
        for part in side[1:]:
            yield {**first, **part}


def label(point: SweepPoint) -> str:
    """A short name: each key by as many of its last parts as tell it from the others."""
    names = short_names(list(point))
    return " ".join(f"{name}={short(point[path])}" for name, path in zip(names, point, strict=True)) or "as it is"


def short_names(paths: list[str]) -> list[str]:
    names = []
    for path in paths:
        parts = path.split(".")
        tails = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        unique = (tail for tail in tails if sum(_ends(other, tail) for other in paths) == 1)
        names.append(next(unique, path))
    return names


def _ends(path: str, tail: str) -> bool:
    return path == tail or path.endswith(f".{tail}")


def short(value: object) -> str:
    if isinstance(value, dict):
        return str(value.get("name", value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def require_known(fields: object, path: tuple[str, ...] = ()) -> None:
    """Raise a ConfigError for a mapping that looks like a misspelt dimension: one key, over a list of values."""
    if not isinstance(fields, dict):
        return
    for key, value in fields.items():
        if isinstance(value, dict) and len(value) == 1 and isinstance(next(iter(value.values())), list):
            kind = str(next(iter(value)))
            if kind not in KINDS:
                raise ConfigError(f"unknown kind of dimension {kind!r}; {choices(kind, list(KINDS))}", *path, str(key))
        require_known(value, (*path, str(key)))
