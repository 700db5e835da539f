"""Configs with mistakes: shipped ones changed key by key or letter by letter, each made again from seed and number."""

import random
from copy import deepcopy
from typing import Any, NamedTuple

import yaml
from junk import NAMES, NUMBERS, junk, key_of, near
from raw import spoiled

from fedmbo_ray.cli.entries import KINDS
from fedmbo_ray.config.overrides import DEFAULT
from fedmbo_ray.config.schema import BudgetConfig, ClientsConfig, DataConfig, RecordConfig, RunConfig
from fedmbo_ray.config.shipped import shipped_configs
from fedmbo_ray.core.settings import checked_fields
from fedmbo_ray.federation.availability import Unreliable
from fedmbo_ray.sweeps.schema import TuneSection

COMPONENTS = {path.rpartition(".")[2]: registry for path, registry in KINDS.items()}
MORE = {"clients": ClientsConfig, "record": RecordConfig, "budget": BudgetConfig, "data": DataConfig}
Place = tuple[Any, Any]  # a mapping or a list, and a key of it

SECTIONS = [RunConfig, BudgetConfig, ClientsConfig, DataConfig, RecordConfig, TuneSection, Unreliable]
CLASSES = [registry[name] for registry in KINDS.values() for name in registry]
KEYS = sorted({key for cls in [*SECTIONS, *CLASSES] for key in checked_fields(cls) or {}})
ORIGINALS = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in (DEFAULT, *shipped_configs().values())]
PATHS = [
    "rounds",
    "seed",
    "tune.samples",
    "tune.seeds",
    "algorithm",
    "algorithm.name",
    "problem",
    "data",
    "clients.actors",
]
PATHS += [
    "algorithm.lower",
    "algorithm.lower.steps",
    "algorithm.step_size.value",
    "a.b.c",
    "",
    ".",
    "name",
    "data.name.x",
]


class Mutant(NamedTuple):
    """A file's bytes and the words of a command after it."""

    file: bytes
    words: list[str]
    sweep: bool  # read as a sweep


def mutant(seed: int, number: int) -> Mutant:
    """The mutant of this number; the same one every time."""
    rng = random.Random(f"{seed} {number}")
    fields = deepcopy(rng.choice(ORIGINALS))
    sweep = "tune" in fields
    if "data" in fields and rng.random() < 0.7:
        fields["data"] |= {"name": "digits"}  # so that more of them can be run
    mild = rng.random() < 0.4
    for _ in range(rng.choice([1, 1, 1, 1, 2, 3])):
        fields = mildly_changed(rng, fields) if mild else changed(rng, fields)
    data = yaml.safe_dump(fields, sort_keys=False, allow_unicode=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if not mild and rng.random() < 0.3:
        data = spoiled(rng, data)
    words = [word(rng) for _ in range(0 if mild else rng.choice([0, 0, 0, 1, 2]))]
    return Mutant(data, words, sweep if mild or rng.random() < 0.95 else not sweep)


def word(rng: random.Random) -> str:
    """A `key.path=value`, more or less."""
    path = rng.choice([*PATHS, f"{rng.choice(KEYS)}.{rng.choice(KEYS)}", rng.choice(KEYS)])
    texts = ["", "!!bool maybe", "!!int ''", "&a [*a]", "{", "[1", "!!python/none x", str(junk(rng)), rng.choice(NAMES)]
    return f"{path}{rng.choice(['=', '=', '=', '==', ''])}{rng.choice([*texts, str(rng.choice(NUMBERS))])}"


def places(fields: Any) -> list[Place]:
    """All keys of a config, however deep."""
    keys = list(fields) if isinstance(fields, dict) else range(len(fields)) if isinstance(fields, list) else []
    return [place for key in keys for place in [(fields, key), *places(fields[key])]]


def mildly_changed(rng: random.Random, fields: Any) -> Any:
    """The config with another number, another component, or one more key of its sections; often it can be run."""
    found = places(fields)
    numbers = [place for place in found if isinstance(place[0][place[1]], int | float)]
    parts = [(where, key) for where, key in found if key in COMPONENTS]
    kind = rng.choice(["number", "number", "component", "key"])
    if kind == "number" and numbers:
        where, key = rng.choice(numbers)
        where[key] = rng.choice([0, 1, 2, 3, 7, 50, 0.1, 1e-9, 1e9, 1e300, where[key] * 2, where[key] * 0.01, 5e-324])
    elif kind == "component" and parts:
        where, key = rng.choice(parts)
        name = rng.choice(list(COMPONENTS[key]))
        where[key] = rng.choice(
            [name, {"name": name}, {**(where[key] if isinstance(where[key], dict) else {}), "name": name}]
        )
    else:
        section, cls = rng.choice(list(MORE.items()))
        inner = fields.setdefault(section, {})
        if isinstance(inner, dict):
            inner[rng.choice(list(checked_fields(cls) or {}))] = rng.choice(
                [1, 2, 5, 0.5, 0.0, True, None, "natural", "iid", {}]
            )
    return fields


def changed(rng: random.Random, fields: Any) -> Any:
    """The config with one more mistake; rarely, something else altogether."""
    found = places(fields)
    if not found or rng.random() < 0.01:
        return junk(rng)
    (where, key), (other, second) = rng.choice(found), rng.choice(found)
    kind = rng.choice(["junk", "near", "near", "near", "delete", "add", "rename", "swap", "copy", "name"])
    if kind == "junk":
        where[key] = junk(rng)
    elif kind == "near":
        where[key] = near(rng, where[key])
    elif kind == "delete":
        del where[key]
    elif kind == "swap":
        where[key], other[second] = deepcopy(other[second]), deepcopy(where[key])
    elif kind == "copy":
        where[key] = deepcopy(other[second])
    elif isinstance(where, dict):
        renamed = {"add": rng.choice([rng.choice(KEYS), key_of(rng)]), "rename": key_of(rng), "name": "name"}[kind]
        value = {"add": lambda: rng.choice([junk(rng), 1, 2, 0.5]), "rename": lambda: where.pop(key)}
        where[renamed] = value.get(kind, lambda: rng.choice(NAMES))()
    return fields
