"""python -m fedmbo_ray.run: one run of one config, with progress, records and checkpoints."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from rich.console import Console

from fedmbo_ray.building import build_task
from fedmbo_ray.checkpoints import Record, RunFolder, write_atomically
from fedmbo_ray.command import Parser, guarded
from fedmbo_ray.config import EXECUTION, RunConfig
from fedmbo_ray.experiment import run
from fedmbo_ray.loading import changed, changes, read_config, read_yaml
from fedmbo_ray.profiling import Profile, sampled
from fedmbo_ray.progress import RunProgress, figures
from fedmbo_ray.registry import ConfigError, construct

HELP = """
Examples:
  python -m fedmbo_ray.run
  python -m fedmbo_ray.run rounds=100 algorithm.hypergradient=phe_sum
  python -m fedmbo_ray.run tune_configs/mnist.yaml clients.backend=ray clients.actors=2 --out runs/mnist
  python -m fedmbo_ray.run --out runs/mnist --resume
What a config can name: python -m fedmbo_ray.catalog

Exit codes: 0 finished, 1 diverged or failed, 2 bad config, 130 interrupted (continue with --resume).
"""


def parse(words: list[str]) -> argparse.Namespace:
    parser = Parser("fedmbo_ray.run", "Run federated bilevel optimization as a YAML config says.", HELP)
    parser.add_argument("config", nargs="*", metavar="CONFIG.yaml | key.path=value", help="a config, and changes to it")
    parser.add_argument("--out", type=Path, help="folder for config, records and checkpoints (default: runs/<time>)")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out from its newest checkpoint")
    parser.add_argument("--json", action="store_true", help="print the last record, and nothing else, on stdout")
    parser.add_argument("--profile", action="store_true", help="show where a round's time goes, and draw a flame graph")
    args = parser.parse_config(words)
    if args.resume and args.out is None:
        parser.error("--resume needs --out, the folder of the run to continue")
    return args


def prepare(args: argparse.Namespace) -> tuple[RunConfig, RunFolder]:
    """The config and the folder of the run, both checked; raises ConfigError before anything is started."""
    folder = RunFolder(args.out or Path("runs") / time.strftime("%Y-%m-%d_%H-%M-%S"))
    if args.resume:
        config = continued(folder, args)
    elif folder.has_run():
        raise ConfigError(f"{folder.path} already holds a run: continue it with --resume or choose another --out")
    else:
        config = read_config(args.file, args.overrides)
    build_task(config)
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out must be a folder to write to, but {folder.path}: {error.strerror}") from None
    return config, folder


def continued(folder: RunFolder, args: argparse.Namespace) -> RunConfig:
    """The config to go on with: the folder's own, which only keys that don't change results may differ from."""
    if not folder.config_file.exists():
        raise ConfigError(f"--resume needs a folder with a run, but {folder.path} has no config.yaml")
    old = construct(RunConfig, read_yaml(folder.config_file))
    config = construct(RunConfig, changed(read_yaml(args.file or folder.config_file), args.overrides))
    other = changes(old.resolved(), config.resolved())
    if other:
        raise ConfigError(
            f"--resume must keep the run's config, but these keys are new: {', '.join(other)}; "
            f"only {', '.join(EXECUTION)} may be"
        )
    return config


def records_of(
    config: RunConfig, folder: RunFolder, resume: bool, tick: Callable[[int], None], profile: bool
) -> Iterator[Record]:
    if config.clients.backend == "in_process":
        records = run(config, folder, resume, tick=tick)
        return profiled(records, folder) if profile else records
    print(f"starting Ray and {config.clients.actors} client actors", file=sys.stderr, flush=True)
    from fedmbo_ray.driver import run_on_ray  # Ray takes seconds to import

    return run_on_ray(config, folder, resume, tick, profile)


def profiled(records: Iterator[Record], folder: RunFolder) -> Iterator[Record]:
    """The same records, and at the end a profile in the folder."""
    last: Record = {"round": 0}
    with sampled() as stacks:
        for last in records:
            yield last
    Profile({"this process": stacks}, last["round"]).write(folder.profile_file)


def follow(config: RunConfig, folder: RunFolder, resume: bool, profile: bool) -> Record:
    """Run to the end with progress shown; returns the last record."""
    last: Record = {}
    if resume:
        print(f"going on after round {folder.saved_round()}", file=sys.stderr)
    with RunProgress(config.rounds) as progress:
        records = records_of(config, folder, resume, progress.tick, profile)
        with closing(records):  # type: ignore[type-var]
            for last in records:
                progress.show(last)
    return last


def report(last: Record, folder: RunFolder) -> None:
    if last["status"] == "diverged":
        print(
            f"diverged in round {last['round']}: {last['reason']}. Try a smaller algorithm.step_size or "
            "algorithm.lower.step_size, or a larger algorithm.smoothness (or auto).",
            file=sys.stderr,
        )
    else:
        rounds = "1 round" if last["round"] == 1 else f"{last['round']} rounds"
        print(f"finished after {rounds} and {last['communications']} communications: {figures(last)}", file=sys.stderr)
        print(f"records: {folder.records_file}; picture: python -m analysis.curves {folder.path}", file=sys.stderr)


def show_profile(folder: RunFolder) -> None:
    profile, page = Profile.read(folder.profile_file), folder.path / "profile.html"
    write_atomically(page, profile.flame_graph().encode())
    Console(stderr=True).print(*profile.tables())
    print(f"flame graph: {page}", file=sys.stderr)


def main(words: list[str] | None = None) -> int:
    folder: RunFolder | None = None

    def work() -> int:
        nonlocal folder
        args, stdout = parse(sys.argv[1:] if words is None else words), sys.stdout
        # Up to the end of the process stdout is for the result alone; Ray reports dead workers on it, if late.
        sys.stdout = sys.stderr
        config, folder = prepare(args)
        last = follow(config, folder, args.resume, args.profile)
        report(last, folder)
        if args.profile:
            show_profile(folder)
        if args.json:
            print(json.dumps(last, allow_nan=False), file=stdout, flush=True)
        return 0 if last["status"] == "finished" else 1

    def hint() -> str:
        return f"; continue with --out {folder.path} --resume" if folder is not None and folder.has_run() else ""

    return guarded(work, hint)


if __name__ == "__main__":
    sys.exit(main())
