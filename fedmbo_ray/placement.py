"""Whether a Ray cluster can ever place what is asked of it: a request that it can't would wait without a word."""

import math
from typing import Any

Resources = dict[str, float]


def alive(nodes: list[Any]) -> list[Resources]:
    """What each living node of `ray.nodes()` has."""
    return [node["Resources"] for node in nodes if node["Alive"]]


def total(nodes: list[Resources]) -> str:
    """What a cluster has, in words."""
    cpus, gpus = (sum(node.get(name, 0.0) for node in nodes) for name in ("CPU", "GPU"))
    return f"{cpus:g} CPU and {gpus:g} GPU on {len(nodes)} node(s)"


def capacity(node: Resources, asked: Resources) -> float:
    """How many times a node has what is asked; a fraction of a GPU can't be spread over two."""
    return min((_times(node.get(name, 0.0), amount, name) for name, amount in asked.items()), default=math.inf)


def _times(have: float, amount: float, name: str) -> float:
    if name == "GPU" and amount < 1:
        return math.floor(have) * math.floor(1 / amount + 1e-9)
    return math.floor(have / amount + 1e-9)


def placeable(bundles: list[Resources], nodes: list[Resources]) -> bool:
    """Whether an empty cluster has room for a trial: its own process, and actors that all ask for the same."""
    own, *actors = bundles
    each = actors[0] if actors else {}
    rooms = [capacity(node, each) for node in nodes] if actors else []
    for number, node in enumerate(nodes):
        if capacity(node, own) >= 1:
            rest = {name: amount - own.get(name, 0.0) for name, amount in node.items()}
            room = capacity(rest, each) + sum(rooms[:number] + rooms[number + 1 :]) if actors else 0
            if room >= len(actors):
                return True
    return False
