"""The runs of all arms, and the file that keeps their figures: runs that it has are not repeated."""

import csv
import io
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.ablations.plan import GRID, TUNING_SEEDS, Ablation, Arm, file_of, shipped
from fedmbo_ray.analysis.statistics import Values
from fedmbo_ray.api.experiment import run_experiment
from fedmbo_ray.core.io import write_atomically

COLUMNS = ("config", "arm", "seed", "figure", "value")


class Key(NamedTuple):
    config: str
    arm: str  # with the step size in brackets, if it comes from the grid
    seed: int


class Job(NamedTuple):
    key: Key
    changes: tuple[str, ...]
    figures: tuple[str, ...]


Results = dict[Key, dict[str, float]]  # nan for a run that diverged


def read(path: Path) -> Results:
    known: Results = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            key = Key(row["config"], row["arm"], int(row["seed"]))
            known.setdefault(key, {})[row["figure"]] = float(row["value"])
    return known


def write(path: Path, known: Results) -> None:
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(COLUMNS)
    for key, figures in known.items():
        table.writerows([*key, figure, value] for figure, value in figures.items())
    write_atomically(path, text.getvalue().encode())


def label(arm: str, step_size: float) -> str:
    """What the file calls an arm; what stands behind a comma only says how its step size is chosen."""
    return f"{arm.partition(',')[0]} ({step_size:g})"


def with_step_size(arm: Arm, step_size: float) -> tuple[str, ...]:
    return (*arm.changes, *(f"{key}={step_size}" for key in arm.tuned))


def tuning_jobs(each: Ablation) -> list[Job]:
    """Every step size of the grid, for the arms that take one from it."""
    return [
        Job(Key(each.config, label(name, size), seed), with_step_size(arm, size), tuple(each.figures))
        for name, arm in each.arms.items()
        if arm.tuned
        for size in GRID
        for seed in TUNING_SEEDS
    ]


def chosen_step_size(each: Ablation, name: str, known: Results) -> float:
    """The best on the seeds for tuning, by the mean of one figure, then by the others; those that diverged are out."""
    first = each.arms[name].tuned_for or next(iter(each.figures))
    figures = sorted(each.figures, key=lambda figure: figure != first)

    def quality(size: float) -> tuple[float, ...]:
        values = [values_of(known, each.config, label(name, size), figure, TUNING_SEEDS) for figure in figures]
        means = [each.figures[figure] * own.mean() for figure, own in zip(figures, values, strict=True)]
        return tuple(np.nan_to_num(means, nan=-np.inf))

    return max(GRID, key=quality)


def labels(each: Ablation, known: Results) -> dict[str, str]:
    """The arms as the file names them."""
    return {
        name: label(name, chosen_step_size(each, name, known)) if arm.tuned else name for name, arm in each.arms.items()
    }


def jobs(each: Ablation, known: Results, seeds: Iterable[int]) -> list[Job]:
    """All runs of the table, with the step sizes that were chosen."""
    found = []
    for name, arm in each.arms.items():
        size = chosen_step_size(each, name, known) if arm.tuned else None
        changes = arm.changes if size is None else with_step_size(arm, size)
        shown = name if size is None else label(name, size)
        found += [Job(Key(each.config, shown, seed), changes, tuple(each.figures)) for seed in seeds]
    return found


def values_of(known: Results, config: str, arm: str, figure: str, seeds: Iterable[int]) -> Values:
    """One value for each seed, in their order."""
    return np.array([known[Key(config, arm, seed)][figure] for seed in seeds])


def figures_of(job: Job) -> dict[str, float]:
    """The figures at the end of one run; nan if it diverged."""
    run = run_experiment(file_of(job.key.config), *job.changes, seed=job.key.seed, progress=False)
    last = run.records.iloc[-1]
    return {name: figure(job, name, last) if run.status == "finished" else float("nan") for name in job.figures}


def figure(job: Job, name: str, record: "pd.Series[float]") -> float:
    if name == "test_risk":  # with the shipped ρ, also if the arm trains with another one
        return float(record["test_loss"] + shipped(job.key.config).problem.risk * record["test_loss_variance"])
    return float(record[name])


def run_all(wanted: list[Job], known: Results, path: Path | None, processes: int) -> None:
    """Run what is not known yet; the file is written after every run."""
    new = {job.key: job for job in wanted if not set(job.figures) <= known.get(job.key, {}).keys()}
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        futures = {pool.submit(figures_of, job): job for job in new.values()}
        for future in as_completed(futures):
            known[futures[future].key] = future.result()
            if path is not None:
                write(path, known)
