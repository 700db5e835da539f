"""Which arm is better, by how much, and how surely: a table in Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from benchmarks.ablations.plan import DIRECT, FULL, Ablation
from benchmarks.ablations.runs import Results, labels, values_of
from fedmbo_ray.analysis.statistics import Values, holm, paired

HEADER = ("config", "figure", "arm", "mean", "as shipped is better by", "p")


class Row(NamedTuple):
    config: str
    figure: str
    arm: str
    values: Values  # one for each seed
    better: Values | None  # by how much the shipped config is better; None if this is the shipped one


def half_width(values: Values) -> float:
    """Of Student's 95 % interval of the mean."""
    return float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5)


def interval(values: Values) -> str:
    """The mean with Student's 95 % interval; of runs that diverged, their number."""
    diverged = int(np.isnan(values).sum())
    if diverged:
        return f"diverged on {diverged} of {len(values)}"
    return f"{values.mean():.3f} ± {half_width(values):.3f}"


def distinct(each: Ablation, known: Results, seeds: Sequence[int]) -> dict[str, str]:
    """What the table calls each arm of the file; of arms with equal figures on all seeds, the first, with all names."""
    found: dict[tuple[bytes, ...], tuple[str, list[str]]] = {}
    for arm in dict.fromkeys(labels(each, known).values()):
        same = tuple(values_of(known, each.config, arm, figure, seeds).tobytes() for figure in each.figures)
        found.setdefault(same, (arm, []))[1].append(arm)
    return {first: " = ".join(names) for first, names in found.values()}


def rows_of(known: Results, chosen: Iterable[Ablation], seeds: Sequence[int]) -> Iterator[Row]:
    for each in chosen:
        arms = distinct(each, known, seeds)
        for figure, sign in each.figures.items():
            full = values_of(known, each.config, FULL, figure, seeds)
            for arm, shown in arms.items():
                own = values_of(known, each.config, arm, figure, seeds)
                yield Row(each.config, figure, shown, own, None if arm == FULL else sign * (full - own))


def p_values(rows: Iterable[Row]) -> list[float]:
    """Of sign-flip tests, adjusted by Holm's method; nan where there is nothing to compare."""
    return holm([float("nan") if row.better is None else two_sided(row.better) for row in rows])


def two_sided(differences: Values) -> float:
    """Twice the smaller p of the two one-sided tests; nan if a run diverged."""
    zero = np.zeros_like(differences)
    return float(np.minimum(1, 2 * np.minimum(paired(differences, zero).p, paired(zero, differences).p)))


def markdown(known: Results, chosen: Iterable[Ablation], seeds: Sequence[int]) -> str:
    """The table, and the line below it: how many comparisons there are, and the smallest p that they allow."""
    rows = list(rows_of(known, chosen, seeds))
    adjusted = p_values(rows)
    lines = [line(HEADER), line(["---"] * len(HEADER)).replace(" ", "")]
    for row, p in zip(rows, adjusted, strict=True):
        better = "" if row.better is None or np.isnan(row.better).any() else interval(row.better)
        lines.append(
            line([row.config, row.figure, row.arm, interval(row.values), better, "" if np.isnan(p) else f"{p:.4f}"])
        )
    count = sum(not np.isnan(p) for p in adjusted)
    least = min(1, count * 2 * 0.5 ** len(seeds))
    said = f"{count} comparisons on {len(seeds)} seeds: the smallest p that they allow is {least:.4f}."
    return "\n".join([*lines, "", said])


def of_the_term(known: Results, chosen: Iterable[Ablation], seeds: Sequence[int]) -> str:
    """The main question alone: is the shipped config better than without the implicit term, in its first figure?

    One comparison for each config that is shipped with the term, adjusted among themselves.
    """
    asked = [each for each in chosen if DIRECT in each.arms]
    rows, p_values = [], []
    for each in asked:
        figure, sign = next(iter(each.figures.items()))
        full, without = (values_of(known, each.config, arm, figure, seeds) for arm in (FULL, DIRECT))
        better = sign * (full - without)
        rows.append([each.config, figure, interval(full), interval(without), interval(better)])
        p_values.append(two_sided(better))
    lines = [line(["config", "figure", "as shipped", "direct", "as shipped is better by", "p"]), "|---" * 6 + "|"]
    lines += [line([*row, f"{p:.4f}"]) for row, p in zip(rows, holm(p_values), strict=True)]
    return "\n".join(lines)


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
