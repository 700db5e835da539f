"""What the catalogue says about an entry besides its docstring: where it comes from, what it sends, how it was checked.

A class may have a `card`. It is the place for what users compare methods by; tests compare the costs with the meter.
"""

from typing import Literal, NamedTuple

Participation = Literal["partial", "half", "full", "one"]

# Whether it stops at the right point when clients differ. drift: off by the order of its local steps, which move
# clients apart; no: off by something that no step size removes.
Heterogeneity = Literal["yes", "drift", "no"]

PAPER, CODE, RECONSTRUCTED, OURS, STANDARD = "paper", "code", "reconstructed", "ours", "standard"
STATUS = {
    PAPER: "checked against the paper",
    CODE: "formula checked against public code",
    RECONSTRUCTED: "reconstructed; not checked against the paper's text",
    OURS: "derived and measured here",
    STANDARD: "textbook knowledge",
}


class Cost(NamedTuple):
    """Of one call, or of one round of a method: communications, and floats per client that takes part in it.

    Formulas in p and q (the dimensions of x and y), m, n, T (`steps`), N (`terms`), and random letters:
    D, a depth uniform on {0, …, N−1}; D_max and D_mean over the columns of a cohort; R, counted as it comes.
    Q are the steps on a linear system; a lone 1 among the floats down is ℓ.
    The first round may cost more (starting momenta, a warm-up), and so may `smoothness: auto` (1 communication).
    """

    communications: str
    down: str
    up: str


class Card(NamedTuple):
    paper: str
    status: str  # a key of STATUS
    cost: Cost | None = None
    participation: Participation = "partial"  # half: some communications ask all clients; one: a single client
    heterogeneity: Heterogeneity = "yes"
