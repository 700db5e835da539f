"""fedmbo run: one run of one config, with progress, records and checkpoints."""

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from fedmbo_ray.cli.command import Parser, called, guarded, place, result_alone
from fedmbo_ray.core.timed_folders import new_timed

if TYPE_CHECKING:  # imported where needed, so that --help is fast
    from fedmbo_ray.config.schema import RunConfig
    from fedmbo_ray.problems.base import Task
    from fedmbo_ray.runs.folder import RunFolder
    from fedmbo_ray.runs.progress import RunProgress
    from fedmbo_ray.runs.records import Record

MODULE = "fedmbo_ray.run"
HELP = """
Examples:
  fedmbo run
  fedmbo run rounds=100 algorithm.hypergradient=phe_sum
  fedmbo run tune_configs/mnist.yaml clients.backend=ray clients.actors=2 --out runs/mnist
  fedmbo run --out runs/mnist --resume
  fedmbo run --out runs/mnist --resume rounds=2000
  fedmbo run rounds=null budget.communications=440
The names that a config can use: fedmbo catalog

Exit codes: 0 finished, 1 diverged or failed, 2 bad config, interrupted (continue with --resume):
130 by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.
"""


def parse(words: list[str]) -> argparse.Namespace:
    parser = Parser(MODULE, "Run the federated bilevel optimization that a YAML config describes.", HELP)
    parser.add_argument("config", nargs="*", metavar="CONFIG.yaml | key.path=value", help="a config, and changes to it")
    parser.add_argument("--out", type=place, help="folder for config, records and checkpoints (default: runs/<time>)")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out from its newest checkpoint")
    parser.add_argument("--json", action="store_true", help="print only the last record on stdout")
    parser.add_argument("--track", action="store_true", help="record the run in MLflow, like a sweep")
    parser.add_argument("--profile", action="store_true", help="show where a round's time goes; draw a flame graph")
    args = parser.parse_config(words)
    if args.resume and args.out is None:
        parser.error("--resume needs --out, the folder of the run to continue")
    return args


def prepared_run(args: argparse.Namespace, folder: "RunFolder | None") -> tuple["RunConfig", "Task"]:
    """The config of the run, checked, and its task; raises ConfigError before anything is started."""
    from fedmbo_ray.api.configs import prepared

    return prepared(args.file, args.overrides, {}, folder, args.resume)


def records_of(
    config: "RunConfig", task: "Task", folder: "RunFolder", resume: bool, progress: "RunProgress", profile: bool
) -> Iterator["Record"]:
    from fedmbo_ray.runs.loop import run

    if config.clients.backend == "in_process":
        records = run(config, folder, resume, tick=progress.tick, task=task)
        return profiled(records, folder) if profile else records
    print(f"starting Ray and {config.clients.actors} client actors", file=sys.stderr, flush=True)
    from fedmbo_ray.runs.driver import run_on_ray  # Ray takes seconds to import

    return run_on_ray(config, folder, resume, progress.tick, profile, progress.say)


def profiled(records: Iterator["Record"], folder: "RunFolder") -> Iterator["Record"]:
    """Yield the same records, and write a profile to the folder at the end."""
    from fedmbo_ray.core.sampling import sampled
    from fedmbo_ray.runs.profile import Profile

    last: Record = {"round": 0}
    with sampled() as stacks:
        for last in records:
            yield last
    Profile({"this process": stacks}, last["round"]).write(folder.profile_file)


def follow(config: "RunConfig", task: "Task", folder: "RunFolder", resume: bool, profile: bool) -> "Record":
    """Run to the end with progress shown; returns the last record."""
    from fedmbo_ray.runs.continuation import known_records
    from fedmbo_ray.runs.limits import Limits
    from fedmbo_ray.runs.progress import RunProgress

    limits, begin = Limits.of(config), 0
    last: Record = {}
    if resume:
        last, saved = (known_records(folder, config) or [{}])[-1], folder.latest()
        begin = 0 if saved is None else saved.round
        if last.get("status") == "finished":
            print(f"finished before; for more rounds: --resume rounds={2 * last['round']}", file=sys.stderr)
        if "status" in last:
            return last
        print(f"continuing after round {begin}", file=sys.stderr)
    with RunProgress(limits, begin) as progress:
        records = records_of(config, task, folder, resume, progress, profile)
        with closing(records):  # type: ignore[type-var]
            for last in records:
                progress.show(last)
    return last


def tracking(config: "RunConfig", folder: "RunFolder", args: argparse.Namespace) -> AbstractContextManager[None]:
    """In this context, the run is recorded in MLflow, if the user asked for it."""
    if not args.track:
        return nullcontext()
    from fedmbo_ray.tracking.single import tracked

    return tracked(config, folder, f"{called(MODULE)} {shlex.join([*args.config, '--track'])}")


def report(last: "Record", folder: "RunFolder") -> None:
    from fedmbo_ray.runs.progress import figures

    if last["status"] == "diverged":
        print(
            f"diverged in round {last['round']}: {last['reason']}. Try a smaller algorithm.step_size or "
            "algorithm.lower.step_size, or a larger algorithm.smoothness (or auto).",
            file=sys.stderr,
        )
    else:
        rounds = "1 round" if last["round"] == 1 else f"{last['round']} rounds"
        if "ended_by" in last:
            print(f"the budget of {last['ended_by'].replace('_', ' ')} is used up", file=sys.stderr)
        print(f"finished after {rounds} and {last['communications']} communications: {figures(last)}", file=sys.stderr)
        print(f"final x and y: {folder.result_file}; records: {folder.records_file}", file=sys.stderr)
        print(f"plot: fedmbo plot {shlex.quote(str(folder.path))}", file=sys.stderr)


def show_profile(folder: "RunFolder") -> None:
    from rich.console import Console

    from fedmbo_ray.core.io import write_atomically
    from fedmbo_ray.runs.profile import Profile

    profile, page = Profile.read(folder.profile_file), folder.path / "profile.html"
    write_atomically(page, profile.flame_graph().encode())
    Console(stderr=True).print(*profile.tables())
    print(f"flame graph: {page}", file=sys.stderr)


def main(words: list[str] | None = None) -> int:
    folder: RunFolder | None = None

    def work() -> int:
        nonlocal folder
        args = parse(sys.argv[1:] if words is None else words)
        from fedmbo_ray.runs.folder import RunFolder

        named = None if args.out is None else RunFolder(args.out)
        with result_alone() as stdout:
            config, task = prepared_run(args, named)
            folder = named or RunFolder(new_timed(Path("runs")))
            with tracking(config, folder, args):
                last = follow(config, task, folder, args.resume, args.profile)
            report(last, folder)
            if args.profile:
                show_profile(folder)
            if args.json:
                print(json.dumps(last, allow_nan=False), file=stdout, flush=True)
        return 0 if last["status"] == "finished" else 1

    def hint() -> str:
        if folder is None or not folder.has_run():
            return ""
        return f"; continue: {called(MODULE)} --out {shlex.quote(str(folder.path))} --resume"

    return guarded(work, hint)
