"""python -m benchmarks.ablations: runs what docs/ablations.csv lacks, prints the table and draws the picture."""

import argparse
from pathlib import Path

from benchmarks.ablations import __doc__ as about
from benchmarks.ablations.picture import draw
from benchmarks.ablations.plan import ABLATIONS
from benchmarks.ablations.runs import jobs, read, run_all, tuning_jobs
from benchmarks.ablations.table import markdown, of_the_term
from fedmbo_ray.core.errors import choices


def parse(words: list[str] | None) -> argparse.Namespace:
    names = [each.config for each in ABLATIONS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablations", description=about)
    parser.add_argument("configs", nargs="*", metavar="CONFIG", help=f"of {', '.join(names)}; all if none is named")
    parser.add_argument("--seeds", type=int, default=12, help="the table has the seeds 1 to this (default: 12)")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--out", type=Path, help="a CSV file that keeps the figures of all runs; delete a config's rows if it changes"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="a PNG file for a picture of the table")
    args = parser.parse_args(words)
    unknown = [name for name in args.configs if name not in names]
    if unknown:
        parser.error(f"unknown config {unknown[0]!r}; {choices(unknown[0], names)}")
    return args


def main(words: list[str] | None = None) -> None:
    args = parse(words)
    chosen = [each for each in ABLATIONS if not args.configs or each.config in args.configs]
    seeds = range(1, args.seeds + 1)
    known = read(args.out) if args.out is not None and args.out.exists() else {}
    for each in chosen:
        run_all(tuning_jobs(each), known, args.out, args.processes)
        run_all(jobs(each, known, seeds), known, args.out, args.processes)
    print(of_the_term(known, chosen, seeds), markdown(known, chosen, seeds), sep="\n\n")
    if args.plot is not None:
        draw(known, chosen, seeds, args.plot)


if __name__ == "__main__":
    main()
