"""Slopes, intervals and paired tests, against what is known exactly or by simulation."""

import itertools
import math
from functools import partial

import numpy as np
import pytest

from fedmbo_ray.analysis.claims import Claim, judged, verdict
from fedmbo_ray.analysis.figures.rounds import EPSILON, crossing
from fedmbo_ray.analysis.learning import Curves, orderings
from fedmbo_ray.analysis.statistics import holm, mean_interval, paired, slope, slope_interval

SIZES = [1, 2, 4, 8, 16, 32]


def test_a_power_law_has_its_slope() -> None:
    assert slope(SIZES, [3 * n**-0.5 for n in SIZES]) == pytest.approx(-0.5)


def test_the_interval_covers_the_slope_as_often_as_it_says() -> None:
    """95 % of 200 times, within 4 standard errors (the bootstrap's own bias allowed for)."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        samples = [rng.gamma(8, n**-0.5 / 8, 32) for n in SIZES]
        found = slope_interval(SIZES, samples)
        covered += found.low <= -0.5 <= found.high
    assert abs(covered / 200 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 200)


def test_the_interval_is_the_same_every_time_and_narrows_with_seeds() -> None:
    rng = np.random.default_rng(1)
    values = rng.gamma(8, 1 / 8, 400)
    few, many = mean_interval(values[:25]), mean_interval(values)
    assert few == mean_interval(values[:25])
    assert (many.high - many.low) < (few.high - few.low) / 2
    assert many.inside(0.9, 1.1)
    assert not few.inside(0.99, 1.01)


def test_the_paired_test_counts_all_signs() -> None:
    """By hand: the share of sign patterns with a mean at least as large."""
    above, below = np.array([3.0, 1.0, 2.5, 0.2, 1.1]), np.array([1.0, 2.0, 1.0, 0.1, 1.0])
    differences = above - below
    means = [np.mean(differences * signs) for signs in itertools.product([1, -1], repeat=5)]
    assert paired(above, below).p == pytest.approx(np.mean([mean >= differences.mean() - 1e-12 for mean in means]))
    assert paired(above, below).mean == pytest.approx(differences.mean())
    assert math.isnan(paired(np.array([1.0, np.nan]), np.zeros(2)).p)


def test_holm_adjusts_in_order_and_leaves_out_what_is_unknown() -> None:
    assert holm([0.01, 0.04, math.nan, 0.03])[:2] == pytest.approx([0.03, 0.06])
    assert math.isnan(holm([0.01, math.nan])[1])
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_rounds_to_a_target_are_found_between_records() -> None:
    """‖∇Φ‖² = 0.5 for 10 rounds, then 0: the mean over k is 5/k."""
    rounds = np.array([10.0, 20.0, 60.0, 100.0])
    assert crossing(rounds, 5 / rounds) == math.ceil(5 / EPSILON)
    assert math.isnan(crossing(rounds[:2], 5 / rounds[:2]))


def test_a_verdict_is_about_what_is_certified() -> None:
    def claim(status, certified: bool = True) -> Claim:
        return Claim("", "", "", status, certified)

    assert verdict([claim("holds"), claim("fails", False)]) == "passed"
    assert verdict([claim("holds"), claim("open")]) == "open"
    assert verdict([claim("holds"), claim("open"), claim("fails")]) == "failed"
    assert verdict([claim("fails", False)]) == "compared"
    assert verdict([]) == "open"
    assert judged(True, enough=False) == "open"


@pytest.mark.parametrize(("seeds", "status"), [(5, "open"), (8, "holds")])
def test_an_ordering_that_so_few_seeds_could_never_show_stays_open(seeds: int, status: str) -> None:
    """With 5 seeds the smallest p is 1/32, times seven comparisons; with 8, 7/256."""
    ours, *others = (
        Curves(name, [(np.arange(2.0), np.full(2, value))] * seeds)
        for name, value in zip("abcdefgh", range(8)[::-1], strict=True)
    )
    said = orderings([(ours, other) for other in others], partial(Curves.at, budgets=1.0), "height", seeds)
    assert [claim.status for claim in said] == [status] * 7
