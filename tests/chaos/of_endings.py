"""Faults of runs that diverge, and of runs whose records have exact figures."""

import signal

from kinds import KINDS
from of_runs import interrupted_at, killed_at
from suffering import DIVERGING, EXACT

PLACES = {"fsync": (6, 14), "record": (3, 9), "figures": (3, 9), "exact": (1, 9), "round": (2, 40), "result": (2, 2)}
for at, (few, most) in PLACES.items():
    for of, words, calls in (("diverging", DIVERGING, few), ("exact", EXACT, most)):
        if (at, of) != ("exact", "diverging"):
            KINDS[f"{of} run: SIGKILL at {at}"] = killed_at(at, calls, False, words)
            KINDS[f"{of} run: SIGINT in {at}"] = interrupted_at(at, calls, signal.SIGINT, words)
