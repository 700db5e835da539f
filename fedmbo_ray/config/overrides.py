"""From YAML files and `key.path=value` words to a RunConfig."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FunctionType

import numpy as np
from pydantic import BaseModel

from fedmbo_ray.config.schema import EXECUTION, Fields, RunConfig
from fedmbo_ray.core.components import (
    Component,
    component_of,
    construct,
    field_names,
    is_number,
    required_of,
    section_of,
)
from fedmbo_ray.core.errors import ConfigError, at, quoted
from fedmbo_ray.core.io import DEEPEST, LONGEST_INTEGER, parse_yaml, read_yaml
from fedmbo_ray.core.settings import checked_fields
from fedmbo_ray.problems import makes_own_data

DEFAULT = Path(__file__).parent / "default.yaml"
Override = str | tuple[list[str], object]  # key.path=value, or its keys and its value


def read_config(path: Path | None, overrides: Sequence[Override]) -> RunConfig:
    """The config in a YAML file (the shipped default if None), changed by `key.path=value` words."""
    return construct(RunConfig, changed(read_yaml(path or DEFAULT), overrides))


def changed(fields: Fields, overrides: Sequence[Override], root: type[RunConfig] = RunConfig) -> Fields:
    """The fields of a `root` with each `key.path=value` applied: outer before inner, of equals the last one wins.

    A mapping without a name changes the keys that it has, as in `construct`; with a name, it stands for the whole.
    """
    words = [parse_override(word) if isinstance(word, str) else word for word in overrides]
    for keys, value in sorted(words, key=lambda word: len(word[0]) - (word[0][-1] == "name")):
        change(root, fields, keys, value)
    touched = {keys[0] for keys, _ in words}
    if "problem" in touched and "data" not in touched and makes_own_data(fields.get("problem")):
        fields.pop("data", None)  # the file's, meant for the problem that was there before
    return fields


def change(root: type[RunConfig], fields: Fields, keys: list[str], value: object) -> None:
    """Apply one change to the fields; a function stands for where it is."""
    value = place_of(value) if inspect.isfunction(value) else value
    path = keys[:-1] if keys[-1] == "name" else keys
    component, cls = annotation_at(root, fields, keys)
    if isinstance(value, str) and not is_number(value) and component_at(root, fields, path) is not None:
        choose(root, fields, path, value)
    elif isinstance(value, Mapping) and value and "name" not in value and set(value) <= set(field_names(cls)):
        for key, inner in value.items():
            change(root, fields, [*keys, key], inner)
    else:
        section_at(root, fields, keys[:-1])[keys[-1]] = plain(value, component)


def place_of(function: FunctionType) -> str:
    """`package.module:name` of a function; a ConfigError if it is inside another one."""
    if function.__qualname__ != function.__name__ or function.__name__ == "<lambda>":
        raise ConfigError(f"a function must be defined at the top of a module, but got {function.__qualname__}")
    return f"{function.__module__}:{function.__name__}"


def plain(value: object, component: Component | None = None, depth: int = 0) -> object:
    """A value as YAML has it: numbers of numpy, paths, tuples and the objects of a component become plain values."""
    if depth > DEEPEST:
        raise ConfigError(f"values may be nested {DEEPEST} deep at most")
    if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
        raise ConfigError(f"integers may have {LONGEST_INTEGER} bits at most, but got {value.bit_length()} bits")
    if component is not None and component.registry.holds(value):
        return component.dump(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(each, component, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, component, depth + 1) for each in value]
    return str(value) if isinstance(value, Path) else value


def parse_override(word: str) -> tuple[list[str], object]:
    """The keys and the value of a `key.path=value`; the value is read as YAML."""
    path, equals, text = word.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        raise ConfigError(f"an override must read key.path=value, but got {quoted(word)}")
    return keys, parse_yaml(text, f"the value of {quoted(word)}")


def section_at(root: type[RunConfig], fields: Fields, keys: list[str]) -> Fields:
    """The mapping at a path, made if there is none; a component's bare name or number becomes a mapping."""
    whole = fields
    for depth, key in enumerate(keys, 1):
        inner = fields.get(key)
        if not isinstance(inner, dict | None):
            inner = as_mapping(root, whole, keys[:depth], inner)
        fields[key] = fields = dict(inner or {})
    return fields


def as_mapping(root: type[RunConfig], fields: Fields, keys: list[str], value: object) -> Fields:
    """What the short form of a component or of a section with a name stands for; anything else is an error."""
    component = component_at(root, fields, keys)
    if component is None and keys == ["data"] and isinstance(value, str):
        return {"name": value}
    if component is None:
        raise ConfigError(f"must be a mapping to set one of its keys, but is {quoted(value)}", *keys)
    with at(".".join(keys)):
        return component.as_mapping(value)


def choose(root: type[RunConfig], fields: Fields, keys: list[str], name: str) -> None:
    """Give a component another name; of its parameters those stay that the new one has no default for."""
    component, section = component_at(root, fields, keys), section_at(root, fields, keys)
    if section.get("name") == name:
        return
    needed = required_of(component.registry[name]) if component is not None and name in component.registry else []
    kept = {key: value for key, value in section.items() if key in needed}
    section.clear()
    section.update({"name": name, **kept})


def component_at(root: type[RunConfig], fields: Fields, keys: list[str]) -> Component | None:
    """The annotation of the component at a path, None if there is none; `fields` say what is chosen on the way."""
    return annotation_at(root, fields, keys)[0]


def annotation_at(root: type[RunConfig], fields: Fields, keys: list[str]) -> tuple[Component | None, type | None]:
    """The annotation of the component at a path, and the class of that component or section; None if there is none."""
    cls: type | None = root
    component = None
    for key in keys:
        field = (checked_fields(cls) or {}).get(key)
        if field is None:
            return None, None
        component = component_of(field)
        inner = fields.get(key) if isinstance(fields, dict) else None
        name = inner.get("name") if isinstance(inner, dict) else inner
        fields = inner if isinstance(inner, dict) else {}
        cls = section_of(field)
        if component is not None and isinstance(name, str) and name in component.registry:
            cls = component.registry[name]
    return component, cls


def changes(old: Fields, new: Fields, free: tuple[str, ...] = EXECUTION) -> list[str]:
    """The key paths at which two resolved configs differ, but for those that are free to."""
    return [path for path in differences(old, new) if path not in free]


def differences(old: Fields, new: Fields, path: str = "") -> list[str]:
    """The key paths at which two resolved configs differ."""
    found = []
    for key in sorted(old.keys() | new.keys()):
        here, a, b = f"{path}{key}", old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{here}.")
        elif a != b:
            found.append(here)
    return found
