"""fedmbo study: run the sweeps that answer a question; draw figures and give a verdict."""

import argparse
import shlex
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from fedmbo_ray.cli.command import Parser, called, guarded, place, result_alone
from fedmbo_ray.core.errors import ConfigError, choices
from fedmbo_ray.core.timed_folders import gone_if_empty
from fedmbo_ray.studies.questions import QUESTIONS, require_parts
from fedmbo_ray.sweeps.scales import SCALES, STANDARD

if TYPE_CHECKING:
    from fedmbo_ray.studies.plans import StudyFolder

MODULE = "fedmbo_ray.study"
HELP = f"""
Studies:
{chr(10).join(f"  {name:15} {question.text}" for name, question in QUESTIONS.items())}

Examples:
  fedmbo study linear_speedup
  fedmbo study all --scale smoke
  fedmbo study participation --resume
  fedmbo study heterogeneity clients.backend=ray clients.actors=4

You can also run a sweep of a study alone: fedmbo tune tune_configs/studies/heterogeneity.yaml
Exit codes: 0 done, 1 a trial or the verdict failed, 2 bad config, interrupted (continue with --resume):
130 by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.
"""


def parse(words: list[str]) -> argparse.Namespace:
    parser = Parser(MODULE, "Run a study: its sweeps, its figures, its verdict.", HELP)
    parser.add_argument("words", nargs="+", metavar="NAME | key.path=value", help="studies, and changes to all sweeps")
    parser.add_argument("--scale", choices=SCALES, default=STANDARD, help="how much is run (default: standard)")
    parser.add_argument("--out", type=place, help="the study's folder (default: studies/<name>-<scale>-<time>)")
    parser.add_argument("--resume", action="store_true", help="continue the study in --out, or the last of this name")
    parser.add_argument("--only", metavar="SWEEP,...", default="", help="run only these sweeps of the study")
    args = parser.parse_intermixed_args(words)
    args.only = [word for word in args.only.split(",") if word]
    args.overrides = [word for word in args.words if "=" in word]
    names = [word for word in args.words if "=" not in word]
    args.names = list(QUESTIONS) if names == ["all"] else names
    unknown = next((name for name in args.names if name not in QUESTIONS), None)
    if unknown is not None or not names:
        raise ConfigError(f"unknown study {unknown or ''!r}; {choices(unknown or '', [*QUESTIONS, 'all'])}")
    for name in args.names:
        require_parts(name, args.only)
    if args.out is not None and len(args.names) > 1:
        raise ConfigError(f"--out is for one study, but got {', '.join(args.names)}")
    return args


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    started: list[StudyFolder] = []

    def work() -> int:
        args = parse(words)
        from fedmbo_ray.api.study import Study, prepared_study, run_prepared_study  # torch takes seconds to import
        from fedmbo_ray.runs.ray_session import ray_session

        command = f"{called(MODULE)} {shlex.join(word for word in words if word != '--resume')}"
        well = True
        with result_alone(), ray_session(), ExitStack() as stack:
            for name in args.names:
                started.append(prepared_study(name, args.scale, args.out, args.resume))
                stack.enter_context(gone_if_empty(started[-1].path))
            for name, folder in zip(args.names, started, strict=True):
                failed = run_prepared_study(name, folder, args.scale, args.overrides, args.only, command)
                well = well and not failed and Study(folder.path).verdict != "failed"
        return 0 if well else 1

    def hint() -> str:
        begun = any(folder.has_study() for folder in started)
        return "; continue with the same command and --resume" if begun else ""

    return guarded(work, hint)
