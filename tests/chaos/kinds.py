"""Every kind of fault by its name; the modules that know one register it here."""

from collections.abc import Callable

from suffering import Check

KINDS: dict[str, Check] = {}
SLOW = ("start ", "ray ", "sweep ", "sweep, ", "study ", "MLflow ", "node ")  # kinds of ten seconds and more


def kind(name: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        KINDS[name] = check
        return check

    return register
