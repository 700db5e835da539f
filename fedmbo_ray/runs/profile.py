"""Where a round's time goes: stacks sampled in every process of a run, as tables and as a flame graph.

What a process does is told from the functions on its stack, so that nothing in the hot path is instrumented.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import TypedDict

from rich.table import Table

from fedmbo_ray.core.io import write_atomically
from fedmbo_ray.core.sampling import INTERVAL, Stacks

# From the outside in, the last one found on a stack says what is being done.
DOING = {
    "loop.py:_record": "evaluating and recording",
    "loop.py:_save": "saving checkpoints",
    "clients.py:sample": "sampling clients, cutting blocks, counting",
    "exchange.py:foreseen": "sampling clients, cutting blocks, counting",
    "exchange.py:communicate": "sampling clients, cutting blocks, counting",
    "clients.py:relay": "sampling clients, cutting blocks, counting",
    "messages.py:send": "sending and receiving",
    "messages.py:receive": "sending and receiving",
    "transport.py:wait": "waiting for clients",
    "messages.py:_first": "waiting for the driver",
    "transport.py:receive": "sending and receiving",
    "client_actor.py:compute": "unpacking and packing",
    "execution.py:run_block": "computing",
    "draws.py:draw_batches": "drawing batches",
}
WITH_ALL_BELOW = ("loop.py:_record", "transport.py:receive")  # all that they call counts as theirs
AT_WORK = {"runs/loop.py:records", "backends/ray/client_actor.py:serve", "backends/ray/client_actor.py:compute"}
PARTS = ("methods/lower/", "methods/hypergradients/", "methods/algorithms/", "methods/outer.py")


class Box(TypedDict):
    """A function in a flame graph, with those that it calls."""

    name: str
    seconds: float
    below: dict[str, "Box"]


class Profile:
    """The stacks of a run's processes, by the process's name, and how many rounds they are of."""

    def __init__(self, processes: dict[str, Stacks], rounds: int) -> None:
        self.processes, self.rounds = processes, max(rounds, 1)

    @staticmethod
    def read(path: Path) -> "Profile":
        return Profile(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        write_atomically(path, json.dumps({"processes": self.processes, "rounds": self.rounds}).encode())

    def tables(self) -> list[Table]:
        """What every process does once it is at work, and for which part of the method the driver does it."""
        doing = {name: _grouped(stacks, _doing) for name, stacks in self.processes.items()}
        first = next(iter(self.processes))
        parts = {first: _grouped(self.processes[first], _part)}
        return [self._table("What it does", doing), self._table("For which part of the method", parts)]

    def _table(self, title: str, columns: dict[str, dict[str, float]]) -> Table:
        table = Table(title=f"{title}: ms per round")
        table.add_column("")
        for name in columns:
            table.add_column(name, justify="right")
        totals = {name: sum(counts.values()) for name, counts in columns.items()}
        rows = sorted({row for counts in columns.values() for row in counts})
        rows.sort(key=lambda row: -max(counts.get(row, 0) for counts in columns.values()))
        for row in rows:
            table.add_row(row, *(self._cell(counts.get(row, 0), totals[name]) for name, counts in columns.items()))
        table.add_section()
        table.add_row("all", *(self._cell(total, total) for total in totals.values()))
        return table

    def _cell(self, seconds: float, total: float) -> str:
        return f"{1000 * seconds / self.rounds:.2f} ({100 * seconds / total:.0f} %)" if seconds else "–"

    def flame_graph(self) -> str:
        """A page that needs nothing else: a box is a function, as wide as its time; a click zooms in."""
        tree: Box = {"name": "all", "seconds": 0.0, "below": {}}
        for process, stacks in self.processes.items():
            for stack, seconds in stacks.items():
                _grow(tree, [process, *_at_work(stack.split(";"))], seconds)
        boxes = list(_boxes(tree, 0, 0.0, tree["seconds"] or 1.0))
        height = 18 * (1 + max(depth for depth, *_ in boxes))
        drawn = "\n".join(self._box(*box) for box in boxes)
        return PAGE.format(height=height, boxes=drawn, rounds=self.rounds, interval=1000 * INTERVAL)

    def _box(self, depth: int, left: float, width: float, name: str, seconds: float) -> str:
        hue = 35 if name.startswith(("torch", "nn", "modules", "numpy", "functional")) else 205
        shade = 72 + sum(map(ord, name)) % 14
        style = f"left:{100 * left:.4f}%;width:{100 * width:.4f}%;top:{18 * depth}px;background:hsl({hue},60%,{shade}%)"
        text = f"{escape(name)}: {seconds:.3g} s, {1000 * seconds / self.rounds:.3g} ms per round"
        return f'<div class="box" style="{style}" title="{text}">{escape(name)}</div>'


def _grouped(stacks: Stacks, group: Callable[[list[str]], str]) -> dict[str, float]:
    groups: dict[str, float] = defaultdict(float)
    for stack, seconds in stacks.items():
        names = stack.split(";")
        if not AT_WORK.isdisjoint(names):
            groups[group(names)] += seconds
    return groups


def _at_work(names: list[str]) -> list[str]:
    """The stack from where a process is at work."""
    start = next((i for i, name in enumerate(names) if name in AT_WORK), None)
    return ["starting and stopping"] if start is None else names[start:]


def _doing(stack: list[str]) -> str:
    names = [name.rpartition("/")[2] for name in stack]
    for name in [*(each for each in WITH_ALL_BELOW if each in names), *reversed(names)]:
        if name in DOING:
            return DOING[name]
    return "the server's own mathematics" if any(name.startswith(PARTS) for name in stack) else "everything else"


def _part(stack: list[str]) -> str:
    for name in reversed(stack):
        if name.startswith(PARTS):
            return name
    return "loop: evaluating, recording, saving" if "runs/loop.py" in ";".join(stack) else "everything else"


def _grow(tree: Box, names: list[str], seconds: float) -> None:
    tree["seconds"] += seconds
    for name in names:
        tree = tree["below"].setdefault(name, {"name": name, "seconds": 0.0, "below": {}})
        tree["seconds"] += seconds


def _boxes(tree: Box, depth: int, left: float, whole: float) -> Iterator[tuple[int, float, float, str, float]]:
    """Depth, left edge, width, name and seconds of every function that took a thousandth of the time."""
    yield depth, left, tree["seconds"] / whole, tree["name"], tree["seconds"]
    for below in sorted(tree["below"].values(), key=lambda node: -node["seconds"]):
        if below["seconds"] >= whole / 1000:
            yield from _boxes(below, depth + 1, left, whole)
        left += below["seconds"] / whole


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Where the time goes</title>
<style>
body {{ font: 13px system-ui, sans-serif; margin: 1.5em }}
#graph {{ position: relative; height: {height}px; overflow: hidden }}
.box {{ position: absolute; height: 17px; overflow: hidden; white-space: nowrap; font-size: 11px; line-height: 17px;
  text-indent: 3px; border-radius: 2px; cursor: pointer; box-shadow: inset -1px 0 white }}
</style>
<h1>Where the time goes</h1>
<p>{rounds} rounds, a look at every process each {interval:g} ms. A box is a function, as wide as the time spent in it
and in what it calls (below it). Point at a box for its time; click to zoom in, click the top one to zoom out.</p>
<div id="graph">
{boxes}
</div>
<script>
const boxes = [...document.querySelectorAll(".box")].map(box => ({{box, left: parseFloat(box.style.left),
  width: parseFloat(box.style.width)}}));
document.getElementById("graph").onclick = event => {{
  const to = boxes.find(each => each.box === event.target);
  if (!to) return;
  for (const each of boxes) {{
    each.box.style.left = 100 * (each.left - to.left) / to.width + "%";
    each.box.style.width = 100 * each.width / to.width + "%";
    each.box.hidden = each.left + each.width < to.left + 1e-6 || each.left > to.left + to.width - 1e-6;
  }}
}};
</script>
</html>
"""
