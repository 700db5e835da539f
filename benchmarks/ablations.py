"""python -m benchmarks.ablations: what the implicit term does, and learning x at all; the table of docs/problems.md.

Each shipped config runs with many seeds as it is, without the implicit term (`direct`), and with x frozen. A seed fixes
the split of the data over clients and the starting point, so that arms are compared seed by seed. Seed 0 is left out:
configs were tuned on it. Runs that the file --out has already are not repeated: delete it after a change of a config.
"""

import argparse
import csv
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from fedmbo_ray.analysis.statistics import Values, holm, paired
from fedmbo_ray.api.experiment import run_experiment

FULL, DIRECT, FROZEN = "as shipped", "direct", "x frozen"
ROW = "| {} | {} | {} | {} | {} | {} |"


class Ablation(NamedTuple):
    """A config, its figures with the sign of what is better, and what each arm changes."""

    config: str
    figures: dict[str, int]  # 1: more is better; -1: less is
    arms: dict[str, tuple[str, ...]]


def ablation(config: str, figures: dict[str, int], batch: int, **more: tuple[str, ...]) -> Ablation:
    without = f"algorithm.hypergradient={{name: direct, batch_size: {batch}}}"
    return Ablation(config, figures, {FULL: (), DIRECT: (without,), FROZEN: ("algorithm.outer=frozen",), **more})


ABLATIONS = (
    ablation("loss_tuning", {"tail_accuracy": 1, "test_accuracy": 1}, 32),
    ablation(
        "regularization",
        {"test_loss": -1, "test_accuracy": 1},
        32,
        **{f"x frozen at {value}": ("algorithm.outer=frozen", f"problem.initial={value}") for value in (0.01, 0.001)},
    ),
    ablation("hyper_cleaning", {"cleaning_auc": 1, "test_loss": -1, "test_accuracy": 1}, 64),
    ablation("ridge_head", {"test_r2": 1}, 32),
    ablation("fair_reweighting", {"odds_gap": -1, "test_accuracy": 1}, 64),
    ablation("risk_averse", {"test_risk": -1}, 32),
)


Key = tuple[str, str, int]  # config, arm, seed


class Job(NamedTuple):
    config: str
    arm: str
    seed: int
    changes: tuple[str, ...]


def last_record(job: Job) -> dict[str, float]:
    """The figures at the end of one run; nan if it diverged."""
    run = run_experiment(job.config, *job.changes, seed=job.seed, progress=False)
    last = run.records.iloc[-1]
    names = next(each.figures for each in ABLATIONS if each.config == job.config)
    return {name: float(last[name]) if run.status == "finished" else float("nan") for name in names}


def interval(values: Values) -> str:
    """The mean with Student's 95 % interval."""
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():.3f} ± {half:.3f}"


def rows_of(results: dict[Job, dict[str, float]], chosen: Iterable[Ablation]) -> list[list[str]]:
    """Config, figure, arm, its mean, by how much the shipped config is better, and p adjusted by Holm's method."""
    rows, p_values = [], []
    for each in chosen:
        for figure, sign in each.figures.items():
            values = {arm: values_of(results, each.config, arm, figure) for arm in each.arms}
            for arm, own in values.items():
                better = sign * (values[FULL] - own)
                p_values.append(float("nan") if arm == FULL else paired(sign * values[FULL], sign * own).p)
                rows.append([each.config, figure, arm, interval(own), "" if arm == FULL else interval(better)])
    shown = ["" if np.isnan(p) else f"{p:.4f}" for p in holm(p_values)]
    return [[*row, p] for row, p in zip(rows, shown, strict=True)]


def values_of(results: dict[Job, dict[str, float]], config: str, arm: str, figure: str) -> Values:
    """One value for each seed, in their order."""
    found = {job.seed: figures[figure] for job, figures in results.items() if (job.config, job.arm) == (config, arm)}
    return np.array([found[seed] for seed in sorted(found)])


def read(path: Path) -> dict[Key, dict[str, float]]:
    """The figures of runs in a CSV file."""
    known: dict[Key, dict[str, float]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            key = (row["config"], row["arm"], int(row["seed"]))
            known.setdefault(key, {})[row["figure"]] = float(row["value"])
    return known


def write(path: Path, known: dict[Key, dict[str, float]]) -> None:
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["config", "arm", "seed", "figure", "value"])
        for key, figures in known.items():
            table.writerows([*key, figure, value] for figure, value in figures.items())


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablations", description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="*", metavar="CONFIG", help="some of the ablations; all by default")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a CSV file for the figures of every run")
    args = parser.parse_args(words)
    chosen = [each for each in ABLATIONS if not args.configs or each.config in args.configs]
    jobs = [
        Job(each.config, arm, seed, changes)
        for each in chosen
        for arm, changes in each.arms.items()
        for seed in range(1, args.seeds + 1)
    ]
    known = read(args.out) if args.out is not None and args.out.exists() else {}
    new = [job for job in jobs if job[:3] not in known]
    with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool:
        known |= {job[:3]: figures for job, figures in zip(new, pool.map(last_record, new), strict=True)}
    if args.out is not None:
        write(args.out, known)
    results = {job: known[job[:3]] for job in jobs}
    print(ROW.format("config", "figure", "arm", "mean", "as shipped is better by", "p"), file=sys.stdout)
    print("|---|---|---|---|---|---|")
    for row in rows_of(results, chosen):
        print(ROW.format(*row))


if __name__ == "__main__":
    main()
