"""Records: a line of JSON for each recorded round. They are checked when they are read, so code can rely on them."""

import json
import math
from collections.abc import Callable
from typing import Any

from fedmbo_ray.core.errors import quoted

Record = dict[str, Any]

# Keys that only a run's last record has; their values are text.
ENDING = ("status", "reason", "ended_by", "backend", "x_sha256", "y_sha256", "records_sha256")
ENDS = ("finished", "diverged")
COUNTS = ("round", "communications", "samples", "floats_up", "floats_down")
SECONDS = "wall_seconds"


class CutShort(ValueError):
    """A line is not JSON. A crash can leave such a line at the end of a file."""


def read_record(line: bytes) -> Record:
    """The record in a line; raises ValueError if the line is not a record."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise CutShort("it is not JSON") from None
    said = fault(record)
    if said is not None:
        raise ValueError(said)
    return record


def fault(record: object) -> str | None:
    """What is wrong with a record, None if nothing is."""
    if not isinstance(record, dict):
        return f"it must be a mapping, but is {quoted(record)}"
    missing = next((key for key in (*COUNTS, SECONDS) if key not in record), None)
    if missing is not None:
        return f"{missing} is missing"
    for key, value in record.items():
        rule, fits = RULES.get(key, FIGURE)
        if not fits(value):
            return f"{quoted(key)} must be {rule}, but is {quoted(value)}"
    if record.get("status", ENDS[0]) not in ENDS:
        return f"status must be {' or '.join(ENDS)}, but is {quoted(record['status'])}"
    if record.get("status") == "diverged" and "reason" not in record:
        return "status is 'diverged', but reason is missing"
    return None


def is_number(value: object) -> bool:
    """Whether it is a finite number that a float can hold."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


def is_count(value: object) -> bool:
    return type(value) is int and value >= 0 and is_number(value)


Rule = tuple[str, Callable[[object], bool]]
FIGURE: Rule = ("a finite number or null", lambda value: value is None or is_number(value))
RULES: dict[str, Rule] = {
    **dict.fromkeys(COUNTS, ("a whole number of at least 0", is_count)),
    **dict.fromkeys(ENDING, ("text", lambda value: isinstance(value, str))),
    SECONDS: ("a finite number", is_number),
}
