"""From plain values to checked objects: the field that holds a named component, and errors in one line."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, core_schema

from fedmbo_ray.core.cards import card_of
from fedmbo_ray.core.errors import ConfigError, at, choices, quoted
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.core.settings import T, checked_fields

Fields = dict[str, Any]  # keys and values as YAML has them


class Component:
    """Annotation of a field that holds one registered object: ``{name: phe, terms: 5}`` in YAML.

    A bare string is short for ``{name: …}``, and a bare number for ``{name: number, value: …}`` if the field
    says which name stands for a number.
    """

    def __init__(self, registry: Registry, number: str | None = None) -> None:
        self.registry, self.number = registry, number

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(
            self.build, serialization=core_schema.plain_serializer_function_ser_schema(self.dump)
        )

    def build(self, value: object, info: ValidationInfo) -> object:
        if self.registry.holds(value):
            return value
        with at(info.field_name):
            mapping = self.as_mapping(value)
            if "name" not in mapping:
                article = "an" if self.registry.kind[0] in "aeiou" else "a"
                raise ConfigError(f"{article} {self.registry.kind} needs a name; {choices('', list(self.registry))}")
            return construct(self.registry[str(mapping.pop("name"))], {str(key): each for key, each in mapping.items()})

    def dump(self, component: object) -> Fields:
        fields = TypeAdapter(type(component)).dump_python(component, mode="json")
        return {"name": self.registry.name_of(component), **fields}

    def as_mapping(self, value: object) -> Fields:
        """What a name or a number stands for."""
        if isinstance(value, Mapping):
            return dict(value)
        if self.number is not None and is_number(value):
            return {"name": self.number, "value": value}
        if isinstance(value, str):
            return {"name": value}
        kinds = "a name" if self.number is None else "a number, a name"
        raise ConfigError(f"must be {kinds} or a mapping with a name, but got {quoted(value)}")


def is_number(value: Any) -> bool:
    """Also of text such as 1e-3, which YAML does not take for a number."""
    try:
        return not isinstance(value, bool) and float(value) == float(value)
    except (TypeError, ValueError, OverflowError):
        return False


def construct(cls: type[T], values: Mapping[str, Any], kept: T | None = None) -> T:
    """`cls(**values)`, validated; the first thing that is wrong is raised as a ConfigError.

    A mapping given for a section changes only the keys it names; the rest keep the values of `kept`, or their defaults.
    The same holds for a component whose mapping has no `name`.
    """
    built = dict(values) if kept is None else {**{key: getattr(kept, key) for key in field_names(cls)}, **values}
    for name, value in values.items():
        field = (checked_fields(cls) or {}).get(name)
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
        return adapter(cls).validate_python(built)  # type: ignore[arg-type]
    except ValidationError as error:
        raise explain(error.errors(), cls) from None


@cache
def adapter(cls: Any) -> TypeAdapter[Any]:
    """What checks values for a class; it takes longer to make than to use."""
    return TypeAdapter(cls)


def explain(errors: list[ErrorDetails], cls: type) -> ConfigError:
    """The ConfigError for the first of pydantic's errors; what is missing is told all at once."""
    error = errors[0]
    path = tuple(str(part) for part in error["loc"])
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return ConfigError(f"unknown key {path[-1]!r}; {choices(path[-1], field_names(cls))}", *path[:-1])
    if error["type"] in ("missing", "missing_argument"):
        others = [str(each["loc"][-1]) for each in errors[1:] if each["type"] == error["type"]]
        return ConfigError("is required" + (f", and so is {', '.join(others)}" if others else ""), *path)
    if error["type"] == "value_error":
        return ConfigError(str(error["ctx"]["error"]), *path)
    if error["type"] == "dataclass_type":
        keys = ", ".join(field_names(section_of((checked_fields(cls) or {})[path[0]])))
        free = next((base.__name__ for base in cls.__mro__[1:] if _leaves_free(base, path[0])), None)
        if free is None:
            return ConfigError(f"must be a mapping of some of the keys {keys}, but got {quoted(error['input'])}", *path)
        rule = f"is fixed in {cls.__name__}; its keys {keys} can be set, but got {quoted(error['input'])}"
        return ConfigError(f"{rule} ({free} leaves it free)", *path)
    return ConfigError(f"{error['msg'][0].lower()}{error['msg'][1:]}, but got {quoted(error['input'])}", *path)


def _leaves_free(cls: type, name: str) -> bool:
    """Whether a field of a class may hold any component of its kind."""
    field = (checked_fields(cls) or {}).get(name)
    return field is not None and component_of(field) is not None


def field_names(cls: object) -> list[str]:
    """The keys that a section or a component has."""
    return list(checked_fields(cls) or {})


def required_of(cls: object) -> list[str]:
    """Those of its keys that have no default."""
    return [name for name, field in (checked_fields(cls) or {}).items() if field.is_required()]


def component_of(field: FieldInfo) -> Component | None:
    """The annotation of a field that holds a component, None if it holds something else."""
    return next((each for each in field.metadata if isinstance(each, Component)), None)


def parts_of(component: object, *path: str) -> Iterator[tuple[tuple[str, ...], object]]:
    """A component and the ones inside it, with the path of keys to each."""
    yield path, component
    if is_dataclass(component):
        for field in fields(component):
            yield from parts_of(getattr(component, field.name), *path, field.name)


def assumptions(component: object) -> str:
    """What a component and the ones inside it take clients to know already, as their cards say."""
    cards = [card_of(part) for _, part in parts_of(component)]
    return "; ".join(card.assumes for card in cards if card is not None and card.assumes)


def section_of(field: FieldInfo) -> Any:
    """The class of a field that holds a section (or may be None), None if it holds something else."""
    kinds = [field.annotation, *get_args(field.annotation)]
    return next((kind for kind in kinds if checked_fields(kind) is not None), None)
