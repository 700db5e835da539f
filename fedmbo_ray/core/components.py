"""Names that a config may use: one Registry per kind, and the pydantic type that looks names up in it."""

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, TypeVar, cast, dataclass_transform

from annotated_types import Ge, Gt, Le, Lt
from pydantic import ConfigDict, Field, Strict, TypeAdapter, ValidationError, ValidationInfo
from pydantic.dataclasses import dataclass
from pydantic_core import core_schema

from fedmbo_ray.cards import Card

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
    return cast(
        "type[T]",
        dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False, validate_default=True))(cls),
    )


class Registry(Mapping[str, type]):
    """The classes of one kind (say, lower solvers) by the name a config gives them.

    Other packages add theirs by entry points in the group `fedmbo_ray.<group>`; they are imported when asked for.
    """

    def __init__(self, kind: str, group: str, methods: tuple[str, ...], classes: Mapping[str, type]) -> None:
        self.kind, self.group, self.methods = kind, f"fedmbo_ray.{group}", methods
        self._classes = dict(classes)

    def __getitem__(self, name: str) -> type:
        if name in self.plugins:
            return self._load(self.plugins[name])
        if name not in self._classes:
            raise ConfigError(f"unknown {self.kind} {name!r}; {choices(name, list(self))}")
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._classes, **self.plugins})

    def __len__(self) -> int:
        return len({**self._classes, **self.plugins})

    def __contains__(self, name: object) -> bool:
        return name in self._classes or name in self.plugins

    @cached_property
    def plugins(self) -> dict[str, EntryPoint]:
        """What other packages provide."""
        return {point.name: point for point in entry_points(group=self.group)}

    def _load(self, point: EntryPoint) -> type:
        sources = sorted({_source(each) for each in entry_points(group=self.group) if each.name == point.name})
        source = " and ".join(sources)
        if len(sources) > 1:
            raise ConfigError(f"{self.kind} {point.name!r} is given by {source}; only one of them may be installed")
        if point.name in self._classes:
            raise ConfigError(f"{self.kind} {point.name!r} is built in; {source} must give its own another name")
        try:
            cls = point.load()
        except (Exception, SystemExit) as error:  # whatever another package raises
            raise ConfigError(f"{self.kind} {point.name!r} of {source} can't be loaded: {error!r}") from None
        if not isinstance(cls, type) or not hasattr(cls, "__pydantic_fields__"):
            raise ConfigError(f"{self.kind} {point.name!r} of {source} must be a class with @settings, but is {cls!r}")
        card = getattr(cls, "card", None)
        if not isinstance(card, Card | None):
            raise ConfigError(f"{self.kind} {point.name!r} of {source} must have a Card as card, but has {card!r}")
        missing = [method for method in self.methods if not callable(getattr(cls, method, None))]
        if missing:
            raise ConfigError(f"{self.kind} {point.name!r} of {source} must have {', '.join(missing)}")
        return cls

    def holds(self, component: object) -> bool:
        """Whether an object is of one of these classes."""
        return self.name_of(component) is not None

    def name_of(self, component: object) -> str | None:
        """The name of an object's class, None if it has none here."""
        builtin = next((name for name, cls in self._classes.items() if type(component) is cls), None)
        if builtin is not None or not hasattr(component, "__pydantic_fields__"):
            return builtin
        return next((name for name in self.plugins if type(component) is self._loaded(name)), None)

    def _loaded(self, name: str) -> type | None:
        """The class behind another package's name, None if it can't be loaded."""
        try:
            return self[name]
        except ConfigError:
            return None


def _source(point: EntryPoint) -> str:
    """The package that an entry point is from."""
    return point.dist.name if point.dist is not None else point.value


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
        if self.registry.holds(value):
            return value
        with at(info.field_name):
            mapping = self.as_mapping(value)
            if "name" not in mapping:
                article = "an" if self.registry.kind[0] in "aeiou" else "a"
                raise ConfigError(f"{article} {self.registry.kind} needs a name; {choices('', list(self.registry))}")
            return construct(self.registry[str(mapping.pop("name"))], {str(key): each for key, each in mapping.items()})

    def dump(self, component: Any) -> dict[str, Any]:
        fields = TypeAdapter(type(component)).dump_python(component, mode="json")
        return {"name": self.registry.name_of(component), **fields}

    def as_mapping(self, value: Any) -> dict[str, Any]:
        """What a name or a number stands for."""
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
    except (TypeError, ValueError, OverflowError):
        return False


@contextmanager
def at(field: str | None) -> Iterator[None]:
    """Within it, a ConfigError gets `field` in front of its path."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(error.rule, *([field] if field else []), *error.path) from None


def construct(cls: Any, values: Mapping[str, Any], kept: Any = None) -> Any:
    """`cls(**values)`, validated; the first thing that is wrong is raised as a ConfigError.

    A mapping changes the keys it has; for a section, or a component without a new name, the default keeps the others:
    that of the field, or of an object `kept` that the whole is a change of.
    """
    built = dict(values) if kept is None else {**{key: getattr(kept, key) for key in fields_of(cls)}, **values}
    for name, value in values.items():
        field = cls.__pydantic_fields__.get(name)
        if field is None or not isinstance(value, Mapping):
            continue
        section, component = section_of(field), component_of(field)
        default = getattr(kept, name, field.get_default(call_default_factory=True, validated_data={}))
        if section is not None:
            with at(name):
                built[name] = construct(section, value, default if type(default) is section else None)
        elif component is not None and "name" not in value and component.registry.holds(default):
            built[name] = {**component.dump(default), **value}
    try:
        return TypeAdapter(cls).validate_python(built)
    except ValidationError as error:
        raise explain(error.errors(), cls) from None


def explain(errors: Any, cls: Any) -> ConfigError:
    """The ConfigError for the first of pydantic's errors; what is missing is told all at once."""
    error = errors[0]
    path = tuple(str(part) for part in error["loc"])
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return ConfigError(f"unknown key {path[-1]!r}; {choices(path[-1], fields_of(cls))}", *path[:-1])
    if error["type"] in ("missing", "missing_argument"):
        others = [str(each["loc"][-1]) for each in errors[1:] if each["type"] == error["type"]]
        return ConfigError("is required" + (f", and so is {', '.join(others)}" if others else ""), *path)
    if error["type"] == "value_error":
        return ConfigError(str(error["ctx"]["error"]), *path)
    if error["type"] == "dataclass_type":
        keys = ", ".join(fields_of(section_of(cls.__pydantic_fields__[path[0]])))
        free = next((base.__name__ for base in cls.__mro__[1:] if _leaves_free(base, path[0])), None)
        if free is None:
            return ConfigError(f"must be a mapping of some of the keys {keys}, but got {error['input']!r}", *path)
        rule = f"is fixed in {cls.__name__}; its keys {keys} can be set, but got {error['input']!r}"
        return ConfigError(f"{rule} ({free} leaves it free)", *path)
    return ConfigError(f"{error['msg'][0].lower()}{error['msg'][1:]}, but got {error['input']!r}", *path)


def _leaves_free(cls: Any, name: str) -> bool:
    """Whether a field of a class may hold any component of its kind."""
    field = getattr(cls, "__pydantic_fields__", {}).get(name)
    return field is not None and component_of(field) is not None


def fields_of(cls: Any) -> list[str]:
    """The keys that a section or a component has."""
    return list(cls.__pydantic_fields__)


def required_of(cls: Any) -> list[str]:
    """Those of its keys that have no default."""
    return [name for name, field in cls.__pydantic_fields__.items() if field.is_required()]


def component_of(field: Any) -> Component | None:
    """The annotation of a field that holds a component, None if it holds something else."""
    return next((each for each in field.metadata if isinstance(each, Component)), None)


def parts_of(component: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A component and the ones inside it, with the path of keys to each."""
    yield path, component
    if is_dataclass(component):
        for field in fields(component):
            yield from parts_of(getattr(component, field.name), *path, field.name)


def section_of(field: Any) -> Any:
    """The class of a field that holds a section (or may be None), None if it holds something else."""
    kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
    return next((kind for kind in kinds if hasattr(kind, "__pydantic_fields__")), None)


def choices(wrong: str, known: list[str]) -> str:
    """ "known: …", led by the nearest known word when there is one."""
    near = difflib.get_close_matches(wrong.lower(), known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(known)}"
