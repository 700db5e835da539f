"""Whether a Ray cluster can ever place what is asked of it: a request that it can't would wait without a word."""

import math
from typing import TypedDict

from fedmbo_ray.core.compat import Autoscaling, autoscaling
from fedmbo_ray.core.errors import ConfigError

Resources = dict[str, float]

HEAD = "node:__internal_head__"  # a resource of the head alone
MOST_NODES = 10_000


class Node(TypedDict):
    """What is read of a node in `ray.nodes()`."""

    Alive: bool
    Resources: Resources


def within_reach(nodes: list[Node], config: Autoscaling | None) -> list[Resources]:
    """What each living node of `ray.nodes()` has and, with an autoscaling config, each that may be started."""
    living = [node["Resources"] for node in nodes if node["Alive"]]
    groups = list(config.node_group_configs) if config is not None else []
    if not any(group.resources for group in groups):  # machines given by address: known when they are there
        return living
    own = [resources for resources in living if HEAD in resources]
    return own + [dict(group.resources) for group in groups for _ in range(min(group.max_count, MOST_NODES))]


def cluster_nodes() -> list[Resources]:
    """What the cluster that this process is connected to can have."""
    import ray

    return within_reach(ray.nodes(), autoscaling())


def total(nodes: list[Resources], *besides: str) -> str:
    """What a cluster has of cores, GPUs and some other resources, in words."""
    names = dict.fromkeys(("CPU", "GPU", *besides))
    sums = [f"{sum(node.get(name, 0.0) for node in nodes):g} {name}" for name in names]
    return f"{' and '.join(sums)} on {len(nodes)} node(s)"


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


def require_room(actors: int, cpus: float, gpus: float, nodes: list[Resources]) -> None:
    """Raise a ConfigError at once if a cluster of these nodes could never place the actors."""
    asked = {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount}
    room = sum(capacity(node, asked) for node in nodes)
    if room < actors:
        raise ConfigError(
            f"{actors} actors of {cpus:g} CPU and {gpus:g} GPU must fit the cluster, but it has {total(nodes)}, "
            f"room for {room:g}",
            "clients",
            "actors",
        )
