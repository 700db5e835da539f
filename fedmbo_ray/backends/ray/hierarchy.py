"""Who leads whom among the client actors of several nodes.

On each node one actor leads the others; leaders of nodes are led by some of their own, until few are left to talk to
the driver. A request goes down this tree and its answer up, joined on the way: however many nodes there are, the driver
makes a few calls for a communication, and receives a few vectors.
"""

import math

FAN_OUT = 16  # leaders that the driver talks to, and that a leader leads at each level, at most


def members(nodes: list[str], fan_out: int = FAN_OUT) -> dict[int, list[int]]:
    """By the number of each leader the actors that it leads; `nodes` has the node of each actor."""
    by_node: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        by_node.setdefault(node, []).append(number)
    led = {first: rest for first, *rest in by_node.values()}
    leaders, levels = list(led), 1
    while fan_out**levels < len(leaders):
        levels += 1
    width = math.ceil(len(leaders) ** (1 / levels) - 1e-9)  # the same at every level
    for _ in range(levels - 1):
        groups = [leaders[start : start + width] for start in range(0, len(leaders), width)]
        for first, *rest in groups:
            led[first] = led[first] + rest
        leaders = [group[0] for group in groups]
    return led


def weight(number: int, led: dict[int, list[int]]) -> int:
    """How many actors an actor and those below it are."""
    return 1 + sum(weight(each, led) for each in led.get(number, []))
