"""The round of a run: everything that a step size may depend on."""

from typing import NamedTuple


class Round(NamedTuple):
    """One round of a run, the argument of step sizes: ``Round(k=3, K=200, n=10)``.

    K is None if only a budget ends the run: the number of rounds is then not known in advance.
    """

    k: int  # the number of rounds before this one
    K: int | None  # the number of rounds of the whole run
    n: int  # the size of a cohort
