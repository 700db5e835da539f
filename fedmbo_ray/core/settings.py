"""The class decorator of every component, and the types of most parameters."""

from typing import Annotated, TypeVar, cast, dataclass_transform

from annotated_types import Ge, Gt, Le, Lt
from pydantic import ConfigDict, Field, Strict
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

T = TypeVar("T")

Count = Annotated[int, Strict(), Ge(1), Le(2**31 - 1)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
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
