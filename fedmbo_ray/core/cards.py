"""What the catalogue says about an entry, besides its docstring: its source, its cost, and how it was checked.

A class may have a `card`. Users compare methods by their cards; tests compare the costs with the meter.
"""

from typing import Literal, NamedTuple

Participation = Literal["partial", "half", "full", "one"]

# Whether it converges to the right point when clients differ. drift: the error is of the order of its local steps,
# which move clients apart; no: the error does not vanish with any step size.
Heterogeneity = Literal["yes", "drift", "no"]

PAPER, CODE, RECONSTRUCTED, OURS, STANDARD = "paper", "code", "reconstructed", "ours", "standard"
STATUS = {
    PAPER: "checked against the paper",
    CODE: "formula checked against public code",
    RECONSTRUCTED: "written from summaries, not checked against the paper's text",
    OURS: "derived and measured here",
    STANDARD: "textbook knowledge",
}


class Cost(NamedTuple):
    """What one call of a part, or one round of a method, costs each client that takes part in it.

    Formulas in p and q (the dimensions of x and y), m, n, T (`steps`), N (`terms`), Q (steps on a linear system), and
    random letters: D, a depth uniform on {0, …, N−1}; D_max and D_mean over the columns of a cohort; R, counted during
    the run. A lone `1` in `down` is the scalar ℓ, which the server sends along.
    The first round may cost more (for momenta or a warm-up), and so does `smoothness: auto` when it measures
    (1 communication).

    Args:
        communications: the number of exchanges server → clients → server.
        down: floats that a client receives.
        up: floats that it sends.

    Example:
        >>> Cost("T", "T*(p + q)", "T*q")  # T steps of minibatch SGD on y: x and y come down, a gradient goes up
        Cost(communications='T', down='T*(p + q)', up='T*q')
    """

    communications: str
    down: str
    up: str


class Card(NamedTuple):
    """What the catalogue says about a class, set in the class as ``card: ClassVar[Card]``.

    Args:
        paper: the authors and the year, or another source.
        status: how it was checked, a key of STATUS.
        cost: what it sends; tests compare that with the meter.
        participation: who must take part. partial: any cohort; half: some communications ask all clients; full: all
            clients; one: a single client.
        heterogeneity: whether it converges to the right point when clients differ.
        first_order: whether it needs no second derivatives; other methods are refused on problems that have none.
        relay: whether a vector passes from client to client; then each communication needs clients chosen
            independently of the earlier ones.
        personal: whether every client has a lower problem, and so a y, of its own: y*_i(x) = argmin g_i(x, ·). Then y
            in the state has one row for each of the m clients, of shape (m, q).
        assumes: what clients are assumed to know already, so that the meter does not count it.

    Example:
        >>> Card("Polyak 1964", "ours", Cost("T", "T*(p + q)", "T*q")).participation
        'partial'
    """

    paper: str
    status: str
    cost: Cost | None = None
    participation: Participation = "partial"
    heterogeneity: Heterogeneity = "yes"
    first_order: bool = False
    relay: bool = False
    assumes: str = ""
    personal: bool = False


def card_of(component: object) -> Card | None:
    """The card of a component or of its class; None if there is none."""
    return getattr(component, "card", None)
