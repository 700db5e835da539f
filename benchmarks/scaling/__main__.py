"""python -m benchmarks.scaling [CONFIG.yaml] [key.path=value ...]: a round's time against the number of nodes.

Measures what calls, bytes and blocks cost here, in the cluster that $RAY_ADDRESS names or on this machine; checks the
model with rounds on the nodes that there are; and says what it expects of more.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import ray
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.arms import Frame
from benchmarks.scaling.measuring import Traced, costs, measured, trace
from benchmarks.scaling.model import Communication, Costs, Machines, Replay
from fedmbo_ray.cli.command import Parser, guarded
from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.io import write_atomically
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.driver import start_ray
from fedmbo_ray.runs.loop import in_process

HELP = """
Examples:
  python -m benchmarks.scaling tune_configs/mnist_paper.yaml clients.cohort_size=40
  python -m benchmarks.scaling tune_configs/mnist_paper.yaml --actors 8 --network 25
"""
EXPECTED = (1, 3, 10, 30, 100, 300, 1000)
HEAVIER = (1, 10, 100)
COHORTS = (10, 100, 1000)
FREE = Costs(0.0, 0.0, 0.0)
console = Console(stderr=True)


def parse(words: list[str]) -> argparse.Namespace:
    parser = Parser("benchmarks.scaling", "A round's time against the number of nodes.", HELP)
    parser.add_argument("config", nargs="*", metavar="CONFIG.yaml | key.path=value")
    parser.add_argument("--actors", type=int, default=1, help="on each node of the cluster that there is (default: 1)")
    parser.add_argument("--cores", type=int, help="that all nodes share, if they are not machines of their own")
    parser.add_argument("--expected-actors", type=int, default=16, help="on each node of clusters that are not here")
    parser.add_argument("--network", type=float, default=10.0, help="Gbit/s between those (default: 10)")
    parser.add_argument("--rounds", type=int, default=15, help="to measure each point by (default: 15)")
    parser.add_argument("--out", type=Path, default=Path("runs/scaling"), help="folder for scaling.json and .png")
    return parser.parse_config(words)


def predicted(rounds: list[list[Communication]], machines: Machines, prices: Costs) -> float:
    replay = Replay(machines, prices)
    return statistics.median(replay.round(each) for each in rounds)


def points(args: argparse.Namespace, rounds: list[list[Communication]], prices: Costs, run: Any) -> list[Any]:
    """Rounds on one node, two, and so on, this one last: measured, and as the model has them."""
    here, *others = nodes()
    there = [*others, here]
    found = []
    for count in range(1, len(there) + 1):
        machines = Machines(count, args.actors, cores=args.cores)
        console.print(f"{count} node(s) of {len(there)}")
        seconds = run(there[:count], args.actors, args.rounds)
        found.append({"nodes": count, "measured": seconds, "predicted": predicted(rounds, machines, prices)})
    return found


def through_driver(config: RunConfig) -> list[dict[str, Any]]:
    """Bytes that the driver of a cluster of ten nodes sends and receives in a round, for ever more clients in it."""
    found = []
    for n in COHORTS:
        console.print(f"what goes through the driver with n = {n}")
        grown = config.model_copy(update={"clients": config.clients.model_copy(update={"cohort_size": n})})
        task = build_task(grown)
        frame = Frame(grown, task, traced := Traced(in_process(task)))
        frame.run(1)
        sizes = {name: frame.state[name].nbytes for name in ("x", "y")}
        found.append({"n": n, "bytes": Replay(Machines(10, 1), FREE).through_driver(traced.seen), **sizes})
    return found


def nodes() -> list[str]:
    """The nodes that there are, this one first."""
    here = ray.get_runtime_context().get_node_id()
    return [here, *(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here)]


def expected(args: argparse.Namespace, rounds: list[list[Communication]], prices: Costs, block: int) -> list[Any]:
    """A block for each actor on ever more nodes: computing stays the same, everything else grows."""
    rounds = [sorted(rounds, key=Replay(Machines(1, 1), prices).round)[len(rounds) // 2]]  # one that is typical
    prices = prices._replace(network=args.network * 1e9 / 8)
    found = []
    for count in EXPECTED:
        actors = count * args.expected_actors
        grown = [[each._replace(blocks=grown_blocks(each, rounds, actors)) for each in some] for some in rounds]
        alone = sum(each.compute for each in grown[0])
        machines = Machines(count, args.expected_actors)
        tree, flat = (predicted(grown, each, prices) for each in (machines, machines._replace(tree=False)))
        heavier = {times: times * alone / predicted(scaled(grown, times), machines, prices) for times in HEAVIER}
        found.append(
            {"nodes": count, "actors": actors, "n": actors * block, "compute": alone, "tree": tree, "flat": flat}
            | {"efficiency": heavier}
        )
    return found


def scaled(rounds: list[list[Communication]], times: int) -> list[list[Communication]]:
    """For a model that computes so many times as long, and sends the same."""
    return [[each._replace(compute=times * each.compute) for each in some] for some in rounds]


def grown_blocks(what: Communication, rounds: list[list[Communication]], actors: int) -> int:
    """A block for each actor in a communication of the whole cohort; in others, the share that they have of it."""
    most = max(each.blocks for some in rounds for each in some)
    return max(1, round(actors * what.blocks / most))


def show(results: dict[str, Any]) -> list[Table]:
    check, far = (
        Table(title="Measured here"),
        Table(
            title="Expected, one block per actor",
            caption="share: of computing, for models that compute so many times as long",
        ),
    )
    for column in ("nodes", "ms/round, measured", "by the model", "ratio"):
        check.add_column(column, justify="right")
    for row in results["points"]:
        both = (1000 * row["measured"], 1000 * row["predicted"])
        check.add_row(str(row["nodes"]), *(f"{value:.1f}" for value in both), f"{both[0] / both[1]:.2f}")
    spent = [f"share x{times}" for times in HEAVIER]
    for column in ("nodes", "actors", "n", "computing", "ms/round", "no tree", *spent):
        far.add_column(column, justify="right")
    for row in results["expected"]:
        times = [f"{1000 * row[name]:.0f}" for name in ("compute", "tree", "flat")]
        shares = [f"{share:.2f}" for share in row["efficiency"].values()]
        far.add_row(*(str(row[name]) for name in ("nodes", "actors", "n")), *times, *shares)
    sent = Table(title="Through the driver in a round, 10 nodes", caption="x and y: the size of each, sent once")
    for column in ("n", "MB", "x, MB", "y, MB"):
        sent.add_column(column, justify="right")
    for row in results["through_driver"]:
        sent.add_row(str(row["n"]), *(f"{row[name] / 1e6:.3g}" for name in ("bytes", "x", "y")))
    return [check, far, sent]


def draw(results: dict[str, Any], path: Path) -> None:
    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    axis = figure.add_subplot()
    rows = results["expected"]
    for name, label, style in (
        ("tree", "tree of actors", "-"),
        ("flat", "driver calls every actor", "--"),
        ("compute", "computing alone", ":"),
    ):
        axis.plot([row["nodes"] for row in rows], [1000 * row[name] for row in rows], style, marker="o", label=label)
    axis.set(
        xscale="log",
        yscale="log",
        xlabel=f"nodes, {rows[0]['actors'] // rows[0]['nodes']} actors each",
        ylabel="ms per round",
    )
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main(words: list[str] | None = None) -> int:
    def work() -> int:
        args = parse(sys.argv[1:] if words is None else words)
        config = read_config(args.file, args.overrides)
        torch.set_num_threads(1)
        start_ray()
        task = build_task(config)
        there = nodes()
        others = there[1:] or there
        console.print("what calls cost, and rounds on one actor")
        prices = costs(others, network=1.25e9)
        rounds = trace(config, task, others[0], prices, args.rounds)
        results = {
            "config": config.resolved(),
            "costs": prices._asdict(),
            "communications": [each._asdict() for each in rounds[0]],
            "points": points(args, rounds, prices, lambda *where: measured(config, task, *where)),
            "expected": expected(args, rounds, prices, config.clients.block_size),
            "through_driver": through_driver(config),
        }
        args.out.mkdir(parents=True, exist_ok=True)
        write_atomically(args.out / "scaling.json", json.dumps(results, indent=1).encode())
        draw(results, args.out / "scaling.png")
        Console().print(
            *show(results),
            {name: f"{1e6 * value:.4g} µs" for name, value in prices._asdict().items() if name != "network"},
        )
        return 0

    return guarded(work, lambda: "")


if __name__ == "__main__":
    sys.exit(main())
