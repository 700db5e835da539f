"""What studies say of learning curves, and of sweeps that were not run to their end."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedmbo_ray.analysis.claims import Claim, Table
from fedmbo_ray.analysis.conclusions import Conclusion, conclude
from fedmbo_ray.analysis.figures import heterogeneity, pairs
from fedmbo_ray.analysis.figures.variance import bias_p, smallest_of
from fedmbo_ray.analysis.learning import Curves, common, orderings
from fedmbo_ray.analysis.mlflow_reader import RecordedRun, RecordedStudy, RecordedTrial
from fedmbo_ray.analysis.page import page


def curves(label: str, *rows: list[float], xs: tuple[float, ...] = (0.0, 10.0, 30.0)) -> Curves:
    return Curves(label, [(np.array(xs), np.array(row)) for row in rows])


def test_what_is_reached_between_two_records() -> None:
    found = curves("a", [0.0, 0.5, 0.7], [0.1, 0.3, 0.9])
    assert found.at(20.0) == pytest.approx([0.6, 0.6])
    assert found.at(5.0) == pytest.approx([0.25, 0.2])  # before the first record that was not of round 0
    assert found.reached(0.6) == pytest.approx([20.0, 20.0])
    assert np.isnan(found.reached(0.8)[0])
    assert found.average(10.0) == pytest.approx([0.25, 0.2])
    assert common([found, curves("b", [0.0, 1.0, 1.0], xs=(0.0, 5.0, 20.0))]) == 20.0


def test_too_few_seeds_or_missing_figures_leave_an_ordering_open() -> None:
    good = curves("good", *[[0.0, 0.5, 0.9 + i / 100] for i in range(8)])
    bad = curves("bad", *[[0.0, 0.5, 0.8] for _ in range(8)])
    (shown,) = orderings([(good, bad)], lambda each: each.at(30.0), "accuracy", 8)
    (few,) = orderings([(good, bad)], lambda each: each.at(30.0)[:4], "accuracy", 4)
    (lost,) = orderings([(good, bad)], lambda each: each.at(30.0) * np.nan, "accuracy", 8)
    assert (shown.status, few.status, lost.status) == ("holds", "open", "open")


def run(name: str, **tags: str) -> RecordedRun:
    data = SimpleNamespace(tags=tags, metrics={}, params={})
    return RecordedRun(
        None, SimpleNamespace(info=SimpleNamespace(run_id=name, run_name=name, status="FINISHED"), data=data)
    )


def study(name: str, trials: dict[str, list[str]], **fields: Any) -> RecordedStudy:
    """Each trial by its status."""
    sweeps = {sweep: [RecordedTrial(run("t", status=status), []) for status in each] for sweep, each in trials.items()}
    return RecordedStudy(run("study", study=name, scale="smoke"), sweeps, **fields)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (study("heterogeneity", {}), "heterogeneity was not run to its end"),
        (study("heterogeneity", {"heterogeneity": []}), "heterogeneity was not run to its end"),
        (
            study("heterogeneity", {"heterogeneity": ["finished"]}, going_on=frozenset({"heterogeneity"})),
            "heterogeneity was not run to its end",
        ),
        (
            study("heterogeneity", {"heterogeneity": ["finished", "diverged", "failed"]}),
            "some trials of heterogeneity are diverged, failed",
        ),
    ],
)
def test_a_study_that_was_not_run_to_its_end_is_open(found: RecordedStudy, said: str, tmp_path: Path) -> None:
    conclusion = conclude(found, tmp_path)
    assert conclusion.status == "open"
    assert [claim.measured for claim in conclusion.claims] == [said]
    assert conclusion.captions == {}
    assert [file.name for file in tmp_path.iterdir()] == ["verdict.json"]


def test_where_methods_are_compared_some_may_diverge() -> None:
    endings = pairs.ENDINGS
    assert study("estimators", {"comparison": ["finished", "diverged"]}).lacking("comparison", endings) is None
    assert study("estimators", {"comparison": ["diverged"]}).lacking("comparison", endings) is not None
    assert not hasattr(heterogeneity, "ENDINGS")


def test_a_bias_that_can_not_be_told_is_not_taken_for_none() -> None:
    assert np.isnan(bias_p(RecordedTrial(run("t"), [run("seed")]), [1.0]))
    assert np.isnan(bias_p(RecordedTrial(run("t"), [run("a"), run("b")]), []))
    assert np.isnan(bias_p(RecordedTrial(run("t"), [run("a"), run("b")]), [1.0]))  # neither has the figure
    assert np.isnan(smallest_of([0.5, np.nan]))
    assert smallest_of([0.2, 0.9]) == 0.4


def test_what_comes_from_mlflow_is_text_on_the_page(tmp_path: Path) -> None:
    bad = "<b id=x>"
    claim = Claim(bad, bad, bad, bad)  # type: ignore[arg-type]
    made = Conclusion(bad, bad, 1, bad, bad, bad, bad, bad, {bad: 1}, [claim], {}, [Table([bad], [[bad]])])
    shown = page([made], tmp_path)
    assert bad not in shown
    assert shown.count("&lt;b id=x&gt;") > 12
