"""Compares what a method sends with the cost on its card."""

import re
from collections.abc import Callable
from itertools import product

from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.cards import Cost, card_of
from fedmbo_ray.core.rng import stream
from fedmbo_ray.federation.clients import Federation
from fedmbo_ray.methods.algorithms.double_loop import DoubleLoop
from fedmbo_ray.testing.small import require, start

CostFigures = tuple[float, ...]  # communications, floats down and floats up per client that takes part

P, Q = 3, 5  # the dimensions of x and y where costs are measured


def sends_what_its_card_says(config: RunConfig) -> None:
    """Check the cost of the second round, for a double loop that of its parts. Without a card, check nothing."""
    algorithm = config.algorithm
    parts: list[object] = [algorithm]
    if isinstance(algorithm, DoubleLoop) and not hasattr(algorithm, "card"):
        parts = [algorithm.lower, algorithm.hypergradient, algorithm.outer]
    possible: set[CostFigures] = {(0.0, 0.0, 0.0)}
    told = []
    for part in parts:
        card = card_of(part)
        if card is None or card.cost is None:
            return
        told.append(f"{type(part).__name__} {tuple(card.cost)}")
        possible = {total(a, b) for a in possible for b in formulas(card.cost, letters(part, config))}
    federation, state = start(config)
    state = algorithm.round(federation.clients(stream(1), 0), state)
    seen = measured(federation, lambda: algorithm.round(federation.clients(stream(2), 1), state))
    require(
        seen in possible,
        f"communications, floats down and floats up must be as the card says ({'; '.join(told)}), but were {seen}",
    )


def letters(part: object, config: RunConfig) -> dict[str, int]:
    """The values of the letters in a card's formulas."""
    below, above = getattr(part, "lower", part), getattr(part, "hypergradient", part)
    steps = {"T": getattr(below, "steps", 0), "Q": getattr(above, "steps", 0), "N": getattr(above, "terms", 0)}
    return {**steps, "p": P, "q": Q, "m": config.clients.num_clients, "n": config.clients.cohort_size}


def formulas(cost: Cost, known: dict[str, int]) -> set[CostFigures]:
    """All possible values of a cost, over all values of its random letters."""
    depths, n = range(known["N"]), known["n"]
    random = {"D": depths, "D_max": depths, "D_mean": [i / n for i in range(known["N"] * n)], "R": range(50)}
    used = [letter for letter in random if letter in re.findall(r"\w+", " ".join(cost))]
    found = set()
    for values in product(*(random[letter] for letter in used)):
        given = {**known, **dict(zip(used, values, strict=True))}
        found.add(tuple(round(eval(formula, {}, given), 6) for formula in cost))
    return found


def measured(federation: Federation, call: Callable[[], object]) -> CostFigures:
    """What a call sends."""
    before = counted(federation)
    call()
    return tuple(round(b - a, 6) for a, b in zip(before, counted(federation), strict=True))


def counted(federation: Federation) -> CostFigures:
    meter, n = federation.meter, federation.cohort_size
    return meter.communications, meter.floats_down / n, meter.floats_up / n


def total(a: CostFigures, b: CostFigures) -> CostFigures:
    return tuple(round(i + j, 6) for i, j in zip(a, b, strict=True))
