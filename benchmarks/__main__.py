"""python -m benchmarks: every comparison, side by side in one run; a table, a figure and the numbers as JSON.

Arms take turns on the same task, medians over their turns are compared, and what else the machine did meanwhile is
measured. Peers get a virtual environment of their own under --environments, made on first use.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks import growth, records, tasks
from benchmarks.peers import Unavailable
from benchmarks.report import draw, tables
from benchmarks.tasks import Setting
from benchmarks.timing import Load, Result, interleave, machine
from fedmbo_ray.cli.command import Parser, complain
from fedmbo_ray.core.errors import ConfigError, choices
from fedmbo_ray.core.io import write_atomically
from fedmbo_ray.runs.driver import start_ray

HELP = """
Examples:
  python -m benchmarks
  python -m benchmarks one_step fedmbo
  python -m benchmarks --short --data digits
"""
PARTS = ("one_step", "fedmbo", "cnn", "wide", "fednest", "record", "growth")
console = Console(stderr=True)


def compare(makers: dict[str, Callable[[], Any]], repetitions: int, seconds: float) -> dict[str, Any]:
    """Times of all arms that can be had here, and the load meanwhile."""
    arms, missing = {}, {}
    with console.status("starting") as status:
        for name, make in makers.items():
            status.update(f"starting {name}")
            try:
                arms[name] = make()
            except Unavailable as reason:
                missing[name] = str(reason)
                console.print(f"{name} is left out: {reason}", markup=False)
        load = Load()
        try:
            results = interleave(arms, repetitions, seconds, status.update)
        finally:
            for arm in arms.values():
                arm.close()
    return {"arms": {name: entry(result) for name, result in results.items()}, "missing": missing, **load.foreign()}


def entry(result: Result) -> dict[str, Any]:
    return {
        "median_seconds": result.median,
        "seconds": result.seconds,
        "rounds_per_turn": result.rounds,
        "figures": result.figures,
    }


def grow(setting: Setting, curves: dict[str, tuple[int, ...]], repetitions: int, seconds: float) -> dict[str, Any]:
    """Each curve's points take turns, too; then the memory of each is measured, in a process of its own."""
    answer = {}
    for curve, values in curves.items():
        console.print(f"growth in {curve}: {', '.join(map(str, values))}")
        makers = {str(value): partial(growth.arm, setting, curve, value) for value in values}
        answer[curve] = compare(makers, repetitions, seconds)
        answer[curve]["megabytes"] = {str(value): growth.memory(setting, curve, value) for value in values}
    return answer


def largest_shares(setting: Setting, short: bool) -> list[dict[str, Any]]:
    """Of each shipped config that is measured, the run whose records take the largest share of its time."""
    files, seconds = (["mnist"], 0.1) if short else (records.shipped(), 0.5)
    found = []
    with console.status("") as status:
        for file in files:
            status.update(f"records of {file}")
            worst = max(records.shares(file, setting, seconds), key=lambda each: each.share)
            found.append({**worst._asdict(), "share": worst.share})
    return found


def measure(part: str, setting: Setting, short: bool, environments: Path) -> dict[str, Any]:
    repetitions, seconds = (2, 0.2) if short else (11, 1.0)
    if part == "growth":
        curves = {name: values[:1] if short else values for name, values in growth.CURVES.items()}
        return grow(setting, curves, 2 if short else 5, seconds)
    if part == "record":
        return compare(records.record(setting), repetitions, seconds) | {"shares": largest_shares(setting, short)}
    if part == "one_step":
        with tempfile.TemporaryDirectory(prefix="fedmbo-bench-") as folder:
            return compare(tasks.one_step(setting, Path(folder), environments), repetitions, seconds)
    return compare(getattr(tasks, part)(setting), repetitions, seconds)


def parse(words: list[str]) -> argparse.Namespace:
    parser = Parser("benchmarks", "Measure speed, next to loops written by hand and to other frameworks.", HELP)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--short", action="store_true", help="a few rounds of everything: does it work?")
    parser.add_argument("--data", default="mnist", help="a data set of images (default: mnist)")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder for results.json and speed.png")
    parser.add_argument("--environments", type=Path, default=Path(".bench"), help="folder of the peers' environments")
    args = parser.parse_args(words)
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; {choices(unknown[0], list(PARTS))}")
    return args


def main(words: list[str] | None = None) -> int:
    try:
        args = parse(sys.argv[1:] if words is None else words)
        setting = Setting(args.data)
        clients = setting.config().clients
    except ConfigError as error:
        return complain(error, 2)
    torch.set_num_threads(1)
    start_ray(clients.actors * clients.cpus_per_actor)
    results: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "torch": torch.__version__,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    for part in args.parts or PARTS:
        console.print(f"[bold]{part}[/bold]")
        results[part] = measure(part, setting, args.short, args.environments)
        write_atomically(args.out / "results.json", json.dumps(results, indent=1).encode())
    draw(results, args.out / "speed.png")
    Console().print(*tables(results), f"Kept in {args.out / 'results.json'}, drawn in {args.out / 'speed.png'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
