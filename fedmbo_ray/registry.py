"""Names that a config may use: one Registry per kind, and the pydantic type that looks names up in it."""

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar, cast, dataclass_transform

from annotated_types import Ge, Gt, Le, Lt
from pydantic import ConfigDict, Field, Strict, TypeAdapter, ValidationError, ValidationInfo
from pydantic.dataclasses import dataclass
from pydantic_core import core_schema

T = TypeVar("T")

# What most parameters are.
Count = Annotated[int, Strict(), Ge(1), Le(2**31 - 1)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Probability = Annotated[float, Ge(0), Lt(1)]


class ConfigError(Exception):
    """A config that breaks a rule; as text, one line: path, rule, value, choices."""

    def __init__(self, rule: str, *path: str) -> None:
        super().__init__(rule, *path)
        self.rule, self.path = rule, path

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.rule}" if self.path else self.rule


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def settings(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass whose fields are checked, wherever its values come from."""
    return cast("type[T]", dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))(cls))


class Registry(Mapping[str, type]):
    """The classes of one kind (say, lower solvers) by the name a config gives them."""

    def __init__(self, kind: str, classes: Mapping[str, type]) -> None:
        self.kind = kind
        self._classes = dict(classes)

    def __getitem__(self, name: str) -> type:
        if name not in self._classes:
            raise ConfigError(f"unknown {self.kind} {name!r}; {choices(name, list(self))}")
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, name: object) -> bool:
        return name in self._classes

    def name_of(self, component: object) -> str:
        return next(name for name, cls in self._classes.items() if type(component) is cls)


class Component:
    """Annotation of a field that holds one registered object: ``{name: phe, terms: 5}`` in YAML.

    A bare string is short for ``{name: …}``, and a bare number for ``{name: number, value: …}`` if the field
    says which name stands for a number.
    """

    def __init__(self, registry: Registry, number: str | None = None) -> None:
        self.registry, self.number = registry, number

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(
            self.build, serialization=core_schema.plain_serializer_function_ser_schema(self.dump)
        )

    def build(self, value: Any, info: ValidationInfo) -> Any:
        if type(value) in self.registry.values():
            return value
        with at(info.field_name):
            mapping = self._as_mapping(value)
            if "name" not in mapping:
                raise ConfigError(f"a {self.registry.kind} needs a name; {choices('', list(self.registry))}")
            return construct(self.registry[str(mapping.pop("name"))], {str(key): each for key, each in mapping.items()})

    def dump(self, component: Any) -> dict[str, Any]:
        fields = TypeAdapter(type(component)).dump_python(component, mode="json")
        return {"name": self.registry.name_of(component), **fields}

    def _as_mapping(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            return dict(value)
        if self.number is not None and is_number(value):
            return {"name": self.number, "value": value}
        if isinstance(value, str):
            return {"name": value}
        kinds = "a name" if self.number is None else "a number, a name"
        raise ConfigError(f"must be {kinds} or a mapping with a name, but got {value!r}")


def is_number(value: Any) -> bool:
    """Also of text such as 1e-3, which YAML does not take for a number."""
    try:
        return not isinstance(value, bool) and float(value) == float(value)
    except (TypeError, ValueError):
        return False


@contextmanager
def at(field: str | None) -> Iterator[None]:
    """Within it, a ConfigError gets `field` in front of its path."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(error.rule, *([field] if field else []), *error.path) from None


def construct(cls: Any, fields: Mapping[str, Any]) -> Any:
    """`cls(**fields)`, validated; the first thing that is wrong is raised as a ConfigError."""
    sections = {name: section_of(field) for name, field in cls.__pydantic_fields__.items()}
    built = dict(fields)
    for name, value in fields.items():
        if sections.get(name) is not None and isinstance(value, Mapping):
            with at(name):
                built[name] = construct(sections[name], value)
    try:
        return TypeAdapter(cls).validate_python(built)
    except ValidationError as error:
        raise explain(error.errors()[0], cls) from None


def explain(error: Any, cls: Any) -> ConfigError:
    """The ConfigError for one of pydantic's errors."""
    path = tuple(str(part) for part in error["loc"])
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return ConfigError(f"unknown key {path[-1]!r}; {choices(path[-1], fields_of(cls))}", *path[:-1])
    if error["type"] in ("missing", "missing_argument"):
        return ConfigError("is required", *path)
    if error["type"] == "value_error":
        return ConfigError(str(error["ctx"]["error"]), *path)
    return ConfigError(f"{error['msg'][0].lower()}{error['msg'][1:]}, but got {error['input']!r}", *path)


def fields_of(cls: Any) -> list[str]:
    """The keys that a section or a component has."""
    return list(cls.__pydantic_fields__)


def section_of(field: Any) -> Any:
    """The class of a field that holds a section (or may be None), None if it holds something else."""
    kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
    return next((kind for kind in kinds if hasattr(kind, "__pydantic_fields__")), None)


def choices(wrong: str, known: list[str]) -> str:
    """ "known: …", led by the nearest known word when there is one."""
    near = difflib.get_close_matches(wrong, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(known)}"
