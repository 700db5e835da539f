"""Values that a config should not have, or hardly ever has."""

import math
import random
from typing import Any

from fedmbo_ray.cli.entries import KINDS
from fedmbo_ray.data.datasets import DATASETS
from fedmbo_ray.sweeps.space import KINDS as DIMENSIONS

NAMES = sorted({name for registry in KINDS.values() for name in registry} | set(DATASETS))
NUMBERS = [0, 1, 2, 3, 5, 7, -1, -0.0, 0.5, 0.999, 1.0, 1.5, 100, 2**31 - 1, 2**31, 2**63, 2**64, 10**9, 10**12, 10**30]
NUMBERS += [1e-320, 1e-12, 1e12, 1e300, 1.7e308, -1e300, math.inf, -math.inf, math.nan, 10**400]
WORDS = ["", " ", "nan", "inf", "1e-3", "1_000", "0x10", "~", "null", "yes", "name", "auto", "ray", "float64", "class"]
WORDS += [
    "nope:nope",
    "json:loads",
    ":",
    "a:",
    ":b",
    "no.such.module:f",
    "..:x",
    "a/b",
    "../x",
    "~nobody/x",
    "x" * 100_000,
]
WORDS += [
    "日本語",
    "é\u0301",
    "\u202eabc",
    "😀",
    "a\nb",
    "a\x00b",
    "a'b\"c",
    "<script>alert(1)</script>",
    "${HOME}",
    "{",
    "%s %d",
    "\ud800",
]


def junk(rng: random.Random, depth: int = 0) -> Any:
    """A value of any kind; mappings and lists hold further ones."""
    kinds = ["number", "number", "word", "name", "constant", "list", "mapping", "dimension", "deep"]
    kind = rng.choice(kinds if depth < 3 else kinds[:5])
    if kind == "number":
        return rng.choice(NUMBERS)
    if kind == "word":
        return rng.choice(WORDS)
    if kind == "name":
        return rng.choice(NAMES)
    if kind == "constant":
        return rng.choice([None, True, False, [], {}, [None], {"name": None}, {"name": {}}, {"name": []}, {None: None}])
    if kind == "list":
        return [junk(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == "mapping":
        return {key_of(rng): junk(rng, depth + 1) for _ in range(rng.randrange(4))}
    if kind == "dimension":
        values = [junk(rng, depth + 1) for _ in range(rng.randrange(4))]
        return {rng.choice(DIMENSIONS): rng.choice([values, [1, 2], [0.1, 1.0], [1, 10, 1], junk(rng, 3)])}
    return nested(rng)


def key_of(rng: random.Random) -> Any:
    """A key, of text or not."""
    return rng.choice(["name", "value", "x", "", "a.b", rng.choice(WORDS[:15]), rng.choice(NAMES), 1, None, True, 2.5])


def nested(rng: random.Random) -> Any:
    """Something inside something inside something."""
    value: Any = rng.choice([1, "x", {}])
    for _ in range(rng.choice([10, 60, 150])):
        value = [value] if rng.random() < 0.5 else {rng.choice(["a", "name", "grid"]): value}
    return value


def near(rng: random.Random, value: Any) -> Any:
    """A value close to one that is right: another number, a word with a slip, a list that is longer or shorter."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return rng.choice(
            [value + 1, value - 1, -value, value * 10, value / 2, value * 1e6, float(value), str(value), 0, 1, 2]
        )
    if isinstance(value, str):
        return rng.choice([value.upper(), value[:-1], value + "s", f" {value}", rng.choice(NAMES), rng.choice(NAMES)])
    if isinstance(value, list):
        return rng.choice([value[1:], value * 2, [value], value[::-1], [*value, junk(rng, 2)]])
    if isinstance(value, dict):
        return rng.choice(
            [list(value), list(value.items()), str(value), {"name": value}, next(iter(value.values()), None)]
        )
    return value
