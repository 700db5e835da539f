"""python -m fedmbo_ray.tune: a sweep of run configs on Ray Tune, restartable at any moment."""

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedmbo_ray.checkpoints import to_yaml, write_atomically
from fedmbo_ray.command import Parser, guarded
from fedmbo_ray.config import EXECUTION
from fedmbo_ray.experiment import run
from fedmbo_ray.federation import RunFailed
from fedmbo_ray.loading import changed, changes, read_yaml
from fedmbo_ray.placement import placeable, total
from fedmbo_ray.registry import ConfigError, choices
from fedmbo_ray.sweeps.config import STANDARD, Sweep, SweepFields, make_sweep, read_sweep, scaled
from fedmbo_ray.sweeps.dimensions import corners, short, short_names
from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.ranking import ranked, ranking_table
from fedmbo_ray.tracking.following import Following, insist
from fedmbo_ray.tracking.study import StudyRun
from fedmbo_ray.tracking.tracker import Tracker

QUICKSTART = Path(__file__).parent.parent / "tune_configs" / "quickstart.yaml"

HELP = """
Examples:
  python -m fedmbo_ray.tune
  python -m fedmbo_ray.tune tune_configs/mnist_steps.yaml rounds=200 tune.seeds=3
  python -m fedmbo_ray.tune tune_configs/mnist.yaml 'algorithm.step_size={loguniform: [0.01, 1]}' tune.samples=8
  python -m fedmbo_ray.tune tune_configs/mnist_steps.yaml --dry-run
  python -m fedmbo_ray.tune tune_configs/mnist_steps.yaml --resume

In the cluster that $RAY_ADDRESS names, or in one that is started here and stopped at the end.
Exit codes: 0 done, 1 some trial failed, 2 bad config, 130 interrupted (continue with --resume).
"""


def parse(words: list[str]) -> argparse.Namespace:
    parser = Parser("fedmbo_ray.tune", "Sweep a YAML config whose values may be search dimensions.", HELP)
    parser.add_argument("config", nargs="*", metavar="CONFIG.yaml | key.path=value", help="a sweep, and changes to it")
    parser.add_argument("--out", type=Path, help="the sweep's folder (default: sweeps/<name>-<time>)")
    parser.add_argument(
        "--scale", default=STANDARD, help="one of the file's section `scales` (default: the file as it is)"
    )
    parser.add_argument("--resume", action="store_true", help="continue the sweep in --out, or the last of this name")
    parser.add_argument("--dry-run", action="store_true", help="show the trials and whether there is room, start none")
    parser.add_argument("--json", action="store_true", help="print the best trial, and nothing else, on stdout")
    return parser.parse_config(words)


def prepare(args: argparse.Namespace) -> tuple[Sweep, SweepFolder]:
    """The sweep and its folder, both checked; raises ConfigError before anything is started."""
    folder = folder_of(args)
    if args.resume:
        return continued(args, folder), folder
    if folder.has_sweep():
        raise ConfigError(f"{folder.path} already holds a sweep: continue it with --resume or choose another --out")
    return read_sweep(args.file or QUICKSTART, args.overrides, args.scale), folder


def folder_of(args: argparse.Namespace) -> SweepFolder:
    if args.out is not None:
        return SweepFolder(args.out)
    name = (args.file or QUICKSTART).stem
    if not args.resume:
        return SweepFolder(Path("sweeps") / f"{name}-{time.strftime('%Y-%m-%d_%H-%M-%S')}")
    earlier = [each.parent for each in sorted(Path("sweeps").glob(f"{name}-????-??-??_??-??-??/sweep.yaml"))]
    if not earlier:
        raise ConfigError(f"--resume found no sweep of {name!r} in the folder sweeps; name it with --out")
    return SweepFolder(earlier[-1])


def continued(args: argparse.Namespace, folder: SweepFolder) -> Sweep:
    """The sweep to go on with: the folder's own, which only keys that don't change results may differ from."""
    if not folder.has_sweep():
        raise ConfigError(f"--resume needs a folder with a sweep, but {folder.path} has no sweep.yaml")
    fields = scaled(read_yaml(args.file or folder.sweep_file), args.scale)
    return continued_with(folder, make_sweep(changed(fields, args.overrides, SweepFields)))


def continued_with(folder: SweepFolder, new: Sweep) -> Sweep:
    """The new sweep, if it may go on where the folder's own was left."""
    old = make_sweep(read_yaml(folder.sweep_file))
    free = (
        *EXECUTION,
        *(
            f"tune.{key}"
            for key in ("concurrency", "time_budget", "retries", "cpus_per_trial", "resources", "tracking_uri")
        ),
    )
    other = changes(old.plain(), new.plain(), free)
    if other:
        raise ConfigError(f"--resume must keep the sweep, but these keys are new: {', '.join(other)}")
    return new


def check_metric(sweep: Sweep) -> None:
    """Build the first point's run and look at its first record: the data are there, the metric exists."""
    config = sweep.config(next(corners(sweep.dims)))
    in_process = config.model_copy(update={"clients": config.clients.model_copy(update={"backend": "in_process"})})
    record = next(iter(run(in_process)))
    known = [key for key, value in record.items() if isinstance(value, int | float | None)]
    if sweep.tune.metric not in known:
        raise ConfigError(
            f"must be a figure of a record, but got {sweep.tune.metric!r}; {choices(sweep.tune.metric, known)}",
            "tune",
            "metric",
        )


def nodes() -> list[dict[str, float]]:
    """What the cluster has, or would have if it were started here."""
    from fedmbo_ray.driver import nodes_at_hand  # Ray takes seconds to import

    return nodes_at_hand()


def require_place(sweep: Sweep, have: list[dict[str, float]]) -> None:
    for point in sweep.examples():
        bundles = sweep.bundles(sweep.config(point))
        if not placeable(bundles, have):
            raise ConfigError(
                f"a trial asks for {asked(bundles)}, which must fit the cluster, but it has "
                f"{total(have, *sweep.tune.resources)}"
            )


def asked(bundles: list[dict[str, float]]) -> str:
    """What a trial asks for, in words."""
    own, *actors = [" and ".join(f"{amount:g} {name}" for name, amount in each.items()) for each in bundles]
    return (own or "nothing") + (f", and {len(actors)} client actors of {actors[0]} each" if actors else "")


def dry_run(sweep: Sweep) -> None:
    """Print what would be run."""
    console, points, tune = Console(), sweep.points(), sweep.tune
    table = Table(*["", *short_names([each.path for each in sweep.dims])])
    for number, point in enumerate(points or []):
        table.add_row(str(number), *map(short, point.values()))
    if points is None:
        for each in sweep.dims:
            console.print(f"{each.path}: {each.kind} {list(each.values)}", highlight=False)
    elif len(points) <= 200:
        console.print(table)
    config = sweep.config(next(corners(sweep.dims)))
    count = tune.samples if points is None else len(points)
    runs = f"{tune.seeds} runs of " if tune.seeds > 1 else ""
    print(f"{count} trials of {runs}{sweep.rounds} rounds each, at most")
    print(f"a trial asks for {asked(sweep.bundles(config))}")
    have = nodes()
    try:
        require_place(sweep, have)
        print(f"there is room for it: the cluster has {total(have)}")
    except ConfigError as error:
        print(f"it can never be placed: {error}")


def finish(sweep: Sweep, folder: SweepFolder) -> dict[str, Any] | None:
    """Write down the best trial; returns it in figures, None if no trial has a score."""
    trials = ranked(folder, sweep.tune)
    failed = [each for each in trials if each.status == "failed"]
    for each in failed:
        print(f"trial {each.name} ({each.label}) failed: {each.reason}", file=sys.stderr)
    best = trials[0] if trials and trials[0].score is not None else None
    if best is None:
        return None
    config = sweep.config(best.point)
    write_atomically(folder.best_file, to_yaml(config.resolved()))
    return {"trial": best.name, "point": best.point, "score": best.score, "failed": len(failed), "trials": len(trials)}


def tell(sweep: Sweep, folder: SweepFolder, console: Console) -> None:
    """What came out."""
    console.print(ranking_table(ranked(folder, sweep.tune), sweep.tune, 5))
    seconds = sum(last["wall_seconds"] for trial in folder.trials() for last in trial.lasts())
    print(f"the trials' own time adds up to {seconds:.0f} s", file=sys.stderr)
    if folder.best_file.exists():
        print(f"best config: python -m fedmbo_ray.run {folder.best_file}", file=sys.stderr)


def tell_where(tracker: Tracker) -> None:
    """How to look at what MLflow has."""
    if tracker.uri.startswith("http"):
        print(f"MLflow: {tracker.uri}/{tracker.page}", file=sys.stderr)
    else:
        ui = f"mlflow ui --host 127.0.0.1 --backend-store-uri {tracker.uri}"
        print(f"MLflow: {ui}, then http://127.0.0.1:5000/{tracker.page}", file=sys.stderr)


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    folder: SweepFolder | None = None

    def work() -> int:
        nonlocal folder
        args, stdout = parse(words), sys.stdout
        if args.dry_run:
            dry_run(read_sweep(args.file or QUICKSTART, args.overrides, args.scale))
            return 0
        sys.stdout = sys.stderr
        sweep, folder = prepare(args)
        require_place(sweep, nodes())
        check_metric(sweep)
        best = run_and_record(sweep, folder, f"python -m fedmbo_ray.tune {shlex.join(words)}")
        if args.json:
            print(json.dumps(best), file=stdout, flush=True)
        return 1 if best["failed"] else 0

    def hint() -> str:
        return f"; continue with --out {folder.path} --resume" if folder is not None and folder.has_sweep() else ""

    return guarded(work, hint)


def run_and_record(sweep: Sweep, folder: SweepFolder, command: str, study: StudyRun | None = None) -> dict[str, Any]:
    """Run a sweep to its end with MLflow following it; returns its best trial in figures."""
    from fedmbo_ray.sweeps.tuner import run_sweep  # Ray takes seconds to import

    console, tracker = Console(stderr=True), Tracker(sweep, folder, command, study)
    with folder.claimed(sweep.plain()), Following(tracker) as following:
        run_sweep(sweep, folder, console)
        best = finish(sweep, folder)
        if study is None:
            tell(sweep, folder, console)
        if not following.conclude():
            print(f"MLflow at {tracker.uri} stayed away: continue with --out {folder.path} --resume", file=sys.stderr)
        elif study is None:
            tell_where(tracker)
        else:
            insist(lambda: study.predict(tracker), tracker.uri)
    if best is None:
        raise RunFailed("no trial of the sweep has a score: all have diverged or failed")
    return best


if __name__ == "__main__":
    sys.exit(main())
