"""The class decorator of every component, and the types of most parameters."""

import math
from collections.abc import Mapping
from typing import Annotated, TypeVar, cast, dataclass_transform

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator, ConfigDict, Field, Strict
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from fedmbo_ray.core.errors import quoted

T = TypeVar("T")


def _in_float32(value: float) -> float:
    if value > 3e38:
        raise ValueError(f"must be 3e38 at most, which float32 can hold, but got {value}")
    return value


def require_json(value: object) -> object:
    """The value, if JSON can hold it and gives it back as it was; raises a ValueError."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        for each in value.values():
            require_json(each)
    elif isinstance(value, list):
        for each in value:
            require_json(each)
    elif not isinstance(value, str | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"must be finite numbers, text, lists or mappings of text to these, but got {quoted(value)}")
    return value


Count = Annotated[int, Strict(), Ge(1), Le(2**31 - 1)]
Positive = Annotated[float, Gt(0), AfterValidator(_in_float32)]
NonNegative = Annotated[float, Ge(0), AfterValidator(_in_float32)]
Probability = Annotated[float, Ge(0), Lt(1)]


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def settings(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass whose fields are checked.

    The fields are the keys that a config may set. Their types say what is allowed: `Count`, `Positive`, `NonNegative`,
    `Probability`, `StepSize`, or any other type that pydantic knows.

    Args:
        cls: a class with annotated fields; a ClassVar is not a field.

    Returns:
        The class, whose constructor raises pydantic's ValidationError, a ValueError, if a value is not allowed.

    Example:
        >>> @settings
        ... class Momentum:
        ...     steps: Count
        ...     theta: Probability = 0.9
        >>> Momentum(steps=5)
        Momentum(steps=5, theta=0.9)
    """
    return cast(
        "type[T]",
        dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False, validate_default=True))(cls),
    )


def checked_fields(cls: object) -> dict[str, FieldInfo] | None:
    """The fields of a class with @settings, or of a section of a config; None for anything else."""
    return getattr(cls, "__pydantic_fields__", None)
