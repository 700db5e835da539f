"""What the catalogue says about an entry besides its docstring: where it comes from, what it sends, how it was checked.

A class may have a `card`. It is the place for what users compare methods by; tests measure every cost in it.
"""

from typing import Literal, NamedTuple

Participation = Literal["partial", "half", "full", "one"]

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
    heterogeneity: bool = True  # whether its fixed points stay where they should when clients differ
