"""What a study says: statements with a rule that decides whether they hold."""

from math import isnan
from typing import Literal, NamedTuple

Status = Literal["holds", "fails", "open"]  # open: too little was run to tell


class Claim(NamedTuple):
    text: str
    rule: str
    measured: str
    status: Status
    certified: bool = True  # whether the verdict depends on it; what the paper saw is only compared with
    p: float | None = None


class Table(NamedTuple):
    """What is better read than seen."""

    columns: list[str]
    rows: list[list[str]]


def judged(holds: bool, enough: bool = True, *measured: float) -> Status:
    """Open if too little was run, or if something that was to be measured is nan."""
    if not enough or any(map(isnan, measured)):
        return "open"
    return "holds" if holds else "fails"


def verdict(claims: list[Claim]) -> str:
    """Of what is certified: failed if anything fails, passed if everything holds; compared if nothing is."""
    statuses = {claim.status for claim in claims if claim.certified}
    if not statuses:
        return "compared" if claims else "open"
    return "failed" if "fails" in statuses else "passed" if statuses == {"holds"} else "open"
