"""python -m fedmbo_ray.study: the sweeps that answer a question, and what came out, with figures and a verdict."""

import argparse
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmbo_ray.command import SCALES, Parser, guarded
from fedmbo_ray.registry import ConfigError, choices
from fedmbo_ray.studies import STUDIES, Plan, StudyFolder
from fedmbo_ray.sweeps.config import STANDARD, Sweep
from fedmbo_ray.tracking.experiment import Experiment
from fedmbo_ray.tracking.following import insist
from fedmbo_ray.tracking.study import StudyRun
from fedmbo_ray.tune import check_metric, continued_with, nodes, require_place, run_and_record

HELP = f"""
Studies:
{chr(10).join(f"  {name:15} {study.question}" for name, study in STUDIES.items())}

Examples:
  python -m fedmbo_ray.study linear_speedup
  python -m fedmbo_ray.study all --scale smoke
  python -m fedmbo_ray.study participation --resume
  python -m fedmbo_ray.study heterogeneity clients.backend=ray clients.actors=4

Every sweep of a study can also be run by itself: python -m fedmbo_ray.tune tune_configs/studies/heterogeneity.yaml
Exit codes: 0 done, 1 a trial or the verdict failed, 2 bad config, 130 interrupted (continue with --resume).
"""


def parse(words: list[str]) -> argparse.Namespace:
    parser = Parser("fedmbo_ray.study", "Run a study: its sweeps, its figures, its verdict.", HELP)
    parser.add_argument("words", nargs="+", metavar="NAME | key.path=value", help="studies, and changes to all sweeps")
    parser.add_argument("--scale", choices=SCALES, default=STANDARD, help="how much is run (default: standard)")
    parser.add_argument("--out", type=Path, help="the study's folder (default: studies/<name>-<scale>-<time>)")
    parser.add_argument("--resume", action="store_true", help="continue the study in --out, or the last of this name")
    parser.add_argument("--only", metavar="SWEEP,...", default="", help="some of its sweeps alone")
    args = parser.parse_intermixed_args(words)
    args.only = [word for word in args.only.split(",") if word]
    args.overrides = [word for word in args.words if "=" in word]
    names = [word for word in args.words if "=" not in word]
    args.names = list(STUDIES) if names == ["all"] else names
    unknown = next((name for name in args.names if name not in STUDIES), None)
    if unknown is not None or not names:
        raise ConfigError(f"unknown study {unknown or ''!r}; {choices(unknown or '', [*STUDIES, 'all'])}")
    for name in args.names:
        parts = list(STUDIES[name].parts)
        wrong = next((part for part in args.only if part not in parts), None)
        if wrong is not None:
            raise ConfigError(
                f"--only must name sweeps of the study {name}, but got {wrong!r}; {choices(wrong, parts)}"
            )
    if args.out is not None and len(args.names) > 1:
        raise ConfigError(f"--out is for one study, but got {', '.join(args.names)}")
    return args


def folder_of(args: argparse.Namespace, name: str) -> StudyFolder:
    start = f"{name}-{args.scale}"
    earlier = sorted(Path("studies").glob(f"{start}-????-??-??_??-??-??/identity"))
    if args.out is not None:
        folder = StudyFolder(args.out)
    elif args.resume and earlier:
        folder = StudyFolder(earlier[-1].parent)
    else:
        folder = StudyFolder(Path("studies") / f"{start}-{time.strftime('%Y-%m-%d_%H-%M-%S')}")
    if folder.has_study() and not args.resume:
        raise ConfigError(f"{folder.path} already holds a study: continue it with --resume or choose another --out")
    if args.resume and args.out is not None and folder.has_study() and folder.scale != args.scale:
        raise ConfigError(f"--resume must keep the scale, but {folder.path} has {folder.scale!r}, not {args.scale!r}")
    return folder


def run_study(name: str, folder: StudyFolder, args: argparse.Namespace, command: str) -> bool:
    """Run what is left of a study, and conclude it; returns whether no trial has failed, and nothing certified."""
    run, wanted, failed, uri = StudyRun(name, folder, command), set(args.only or STUDIES[name].parts), 0, None
    for part, planned in STUDIES[name].sweeps(Plan(folder, args.scale, args.overrides)):
        if part in wanted:
            folder.begin(args.scale)
            print(f"{name}: {part}", file=sys.stderr, flush=True)
            failed += run_part(run, part, in_experiment(planned, name))
            wanted, uri = wanted - {part}, planned.tune.tracking_uri
        if not wanted:  # what comes later may build on sweeps that were not asked for
            break
    return conclude(run, uri) and not failed


def in_experiment(sweep: Sweep, name: str) -> Sweep:
    return sweep._replace(tune=sweep.tune.model_copy(update={"experiment": name}))


def run_part(run: StudyRun, part: str, sweep: Sweep) -> int:
    """Run what is left of a sweep; returns how many of its trials have failed."""
    folder = run.folder.sweep(part)
    if folder.has_sweep():
        sweep = continued_with(folder, sweep)
    else:
        check_metric(sweep)
    require_place(sweep, nodes())
    from fedmbo_ray.driver import start_ray  # takes seconds to import

    start_ray()
    return run_and_record(sweep, folder, run.command, run)["failed"]


def conclude(run: StudyRun, uri: str | None) -> bool:
    """Judge what MLflow has, draw it, and tell MLflow."""
    from analysis.conclusions import conclude as judged  # matplotlib takes seconds to import
    from analysis.reading import Store

    experiment, figures = Experiment(run.name, uri), run.folder.path / "figures"

    def step() -> str:
        experiment.connect()
        conclusion = judged(Store(experiment.uri).study(run.name, run.identity), figures)
        run.conclude(experiment, figures, conclusion.note(run.command), conclusion.status)
        print(conclusion.text(), file=sys.stderr)
        return conclusion.status

    return insist(step, experiment.uri) != "failed"


@contextmanager
def one_cluster() -> Iterator[None]:
    """Ray is started by the first sweep that needs it, and stopped at the end, unless it was there before."""
    was_there = "ray" in sys.modules and sys.modules["ray"].is_initialized()
    try:
        yield
    finally:
        if "ray" in sys.modules and not was_there:
            sys.modules["ray"].shutdown()


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    started: list[StudyFolder] = []

    def work() -> int:
        nonlocal started
        args = parse(words)
        folders = started = [folder_of(args, name) for name in args.names]
        command = f"python -m fedmbo_ray.study {shlex.join(word for word in words if word != '--resume')}"
        sys.stdout = sys.stderr
        held = []
        with one_cluster():
            for name, folder in zip(args.names, folders, strict=True):
                held.append(run_study(name, folder, args, command))
        return 0 if all(held) else 1

    def hint() -> str:
        begun = any(folder.has_study() for folder in started)
        return "; continue with the same command and --resume" if begun else ""

    return guarded(work, hint)


if __name__ == "__main__":
    sys.exit(main())
