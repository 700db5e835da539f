"""The studies by name: what each asks, and the names of its sweeps. Plain data, which the command's help prints."""

from collections.abc import Sequence
from typing import NamedTuple

from fedmbo_ray.core.errors import ConfigError, choices

METHODS = ("fedmbo", "fednest", "lfednest", "adafbio", "local_bsgvrm", "fedbioacc", "simfbo", "d_soba")
LOWER = ("minibatch_sgd", "fedsvrg", "fedavg")


class Question(NamedTuple):
    text: str
    sweeps: tuple[str, ...]  # their names, in the order in which they are run


QUESTIONS = {
    "linear_speedup": Question(
        "Does FedMBO need n times fewer rounds with n times the clients per communication, and which methods do not?",
        (
            *("variance", "frozen", "speedup", "estimators", "d_soba", "other_problems"),
            *("nonconvex", "horizon", "rounds", "beyond", "mnist"),
        ),
    ),
    "heterogeneity": Question("What does it cost FedMBO that clients have different data?", ("heterogeneity",)),
    "clients": Question("Does FedMBO learn faster in a larger federation, a tenth of it at a time?", ("clients",)),
    "participation": Question("What does a larger share of clients per communication buy?", ("participation",)),
    "estimators": Question(
        "Which hypergradient estimator goes best with which lower solver?",
        (*(f"tuning_{lower}" for lower in LOWER), "comparison"),
    ),
    "methods": Question(
        "Which method learns most for the same communications, floats and samples?",
        (*(f"tuning_{method}" for method in METHODS), "comparison"),
    ),
    "theory": Question("Which of the paper's bounds hold as printed?", ("estimator", "inner")),
}


def require_parts(name: str, only: Sequence[str]) -> None:
    """Raise a ConfigError for what is no sweep of a study."""
    parts = list(QUESTIONS[name].sweeps)
    wrong = next((part for part in only if part not in parts), None)
    if wrong is not None:
        raise ConfigError(f"only must name sweeps of the study {name}, but got {wrong!r}; {choices(wrong, parts)}")
