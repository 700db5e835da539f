"""Records: a line of JSON for each recorded round. They are checked when they are read, so code can rely on them."""

import json
import math
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
    if not isinstance(record, dict) or any(not is_count(record.get(key)) for key in COUNTS):
        raise ValueError(f"a record must have the counts {', '.join(COUNTS)}")
    wrong = next((key for key, value in record.items() if not fits(key, value)), None)
    if wrong is not None or not is_number(record.get(SECONDS)):
        raise ValueError(f"{quoted(wrong or SECONDS)} must be {'text' if wrong in ENDING else 'a finite number'}")
    if record.get("status", ENDS[0]) not in ENDS or (record.get("status") == "diverged" and "reason" not in record):
        raise ValueError(f"a status must be {' or '.join(ENDS)}, and {ENDS[1]} needs a reason")
    return record


def fits(key: str, value: object) -> bool:
    """Whether a record may have this value for this key."""
    return isinstance(value, str) if key in ENDING else value is None or is_number(value)


def is_number(value: object) -> bool:
    """Whether it is a finite number that a float can hold."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


def is_count(value: object) -> bool:
    return type(value) is int and value >= 0 and is_number(value)
