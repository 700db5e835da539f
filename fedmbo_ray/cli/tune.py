"""fedmbo tune: run a sweep of configs on Ray Tune; it can be interrupted and resumed at any time."""

import argparse
import json
import shlex
import sys
from typing import TYPE_CHECKING

from fedmbo_ray.cli.command import Parser, called, guarded, place, result_alone
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.sweeps.scales import STANDARD

if TYPE_CHECKING:
    from fedmbo_ray.sweeps.folder import SweepFolder
    from fedmbo_ray.sweeps.schema import SweepPlan
    from fedmbo_ray.sweeps.space import SweepPoint

MODULE = "fedmbo_ray.tune"
HELP = """
Examples:
  fedmbo tune
  fedmbo tune tune_configs/mnist_steps.yaml rounds=200 tune.seeds=3
  fedmbo tune tune_configs/mnist.yaml 'algorithm.step_size={loguniform: [0.01, 1]}' tune.samples=8
  fedmbo tune tune_configs/mnist_steps.yaml --dry-run
  fedmbo tune tune_configs/mnist_steps.yaml --resume

Runs on the cluster at $RAY_ADDRESS, or on this machine, where Ray is started and stopped at the end.
Exit codes: 0 done, 1 some trial failed, 2 bad config or one that the cluster can never run, interrupted (continue
with --resume): 130 by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.
"""


def parse(words: list[str]) -> argparse.Namespace:
    parser = Parser(MODULE, "Run a sweep: a YAML config in which any value may be a search dimension.", HELP)
    parser.add_argument("config", nargs="*", metavar="CONFIG.yaml | key.path=value", help="a sweep, and changes to it")
    parser.add_argument("--out", type=place, help="the sweep's folder (default: sweeps/<name>-<time>)")
    parser.add_argument(
        "--scale", default=STANDARD, help="a name in the file's section `scales` (default: the file as it is)"
    )
    parser.add_argument("--resume", action="store_true", help="continue the sweep in --out, or the last of this name")
    parser.add_argument("--dry-run", action="store_true", help="list the trials, check the cluster, start nothing")
    parser.add_argument("--json", action="store_true", help="print only the best trial on stdout")
    return parser.parse_config(words)


def planned(args: argparse.Namespace) -> tuple["SweepPlan", int]:
    """The sweep that would be run, and how many of its trials have ended; makes no folder."""
    from fedmbo_ray.api.sweep import plan_of, prepared_sweep  # torch takes seconds to import

    if not args.resume and args.out is None:
        return plan_of(args.file, args.overrides, args.scale), 0
    sweep, folder = prepared_sweep(args.file, args.overrides, args.out, args.resume, args.scale)
    return sweep, sum(trial.done for trial in folder.trials())


def dry_run(args: argparse.Namespace) -> None:
    """Print the trials, their resources, and whether the cluster can run them; raises ConfigError if it never can."""
    from fedmbo_ray.backends.ray.placement import total
    from fedmbo_ray.runs.ray_session import ray_session
    from fedmbo_ray.sweeps.preflight import asked, nodes, require_place
    from fedmbo_ray.sweeps.rungs import rounds_in_all, stages
    from fedmbo_ray.sweeps.space import corners

    sweep, ended = planned(args)
    points, tune = sweep.points(), sweep.tune
    show_points(sweep, points)
    config = sweep.config(next(corners(sweep.dims)))
    count = tune.samples if points is None else len(points)
    runs = f"{tune.seeds} runs of " if tune.seeds > 1 else ""
    print(f"{count} trials of {runs}{sweep.length} each, at most" + (f"; {ended} have ended already" if ended else ""))
    if sweep.tune.scheduler.waits and (rounds := rounds_in_all(sweep, count)) is not None:
        found = ", ".join(f"{trials} to round {until}" for until, trials in stages(sweep, count))
        print(f"trials that go on, at most: {found}; {rounds * tune.seeds} rounds in all")
    print(f"a trial asks for {asked(sweep.bundles(config))}")
    with ray_session():
        have = nodes()
    try:
        require_place(sweep, have)
    except ConfigError as error:
        raise ConfigError(f"the cluster can never run it: {error}") from None
    print(f"the cluster can run it: it has {total(have)}")


def show_points(sweep: "SweepPlan", points: "list[SweepPoint] | None") -> None:
    """Print the points as a table; if they are not known in advance, print the dimensions."""
    from rich.console import Console
    from rich.table import Table

    from fedmbo_ray.sweeps.space import short, short_names

    console, table = Console(), Table(*["", *short_names([each.path for each in sweep.dims])])
    for number, point in enumerate(points or []):
        table.add_row(str(number), *map(short, point.values()))
    if points is None:
        for each in sweep.dims:
            console.print(f"{each.path}: {each.kind} {list(each.values)}", highlight=False)
    elif len(points) <= 200:
        console.print(table)


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    folder: SweepFolder | None = None

    def work() -> int:
        nonlocal folder
        args = parse(words)
        if args.dry_run:
            dry_run(args)
            return 0
        from fedmbo_ray.api.sweep import prepared_sweep, run_prepared_sweep  # torch takes seconds to import

        with result_alone() as stdout:
            sweep, folder = prepared_sweep(args.file, args.overrides, args.out, args.resume, args.scale)
            best = run_prepared_sweep(sweep, folder, f"{called(MODULE)} {shlex.join(words)}")
            if args.json:
                print(json.dumps(best._asdict()), file=stdout, flush=True)
        return 1 if best.failed else 0

    def hint() -> str:
        if folder is None or not folder.has_sweep():
            return ""
        return f"; continue: {called(MODULE)} --out {shlex.quote(str(folder.path))} --resume"

    return guarded(work, hint)
