"""The table of ablations: which arm is better, by how much, and how surely."""

import numpy as np
import pandas as pd
import pytest
from checkout import ROOT

from benchmarks.ablations.picture import draw, limits
from benchmarks.ablations.plan import (
    ABLATIONS,
    DIRECT,
    FROZEN,
    FULL,
    GRID,
    SINGLE,
    TUNING_SEEDS,
    Ablation,
    Arm,
    shipped,
)
from benchmarks.ablations.runs import (
    Job,
    Key,
    chosen_step_size,
    figure,
    jobs,
    label,
    read,
    run_all,
    tuning_jobs,
    with_step_size,
    write,
)
from benchmarks.ablations.table import Row, interval, markdown, of_the_term, p_values, rows_of, two_sided
from fedmbo_ray.api.experiment import run_experiment
from fedmbo_ray.core.errors import ConfigError

SEEDS = range(1, 13)
CSV = ROOT / "docs" / "ablations.csv"


def test_every_arm_is_a_config() -> None:
    for each in ABLATIONS:
        assert {FULL, FROZEN} < each.arms.keys()
        for arm in each.arms.values():
            shipped(each.config, *with_step_size(arm, 0.1))


@pytest.mark.parametrize("each", [each for each in ABLATIONS if SINGLE in each.arms], ids=lambda each: each.config)
def test_ordinary_training_has_as_many_communications_as_the_shipped_config(each: Ablation) -> None:
    def communications(*changes: str) -> float:
        config = shipped(each.config, *changes)
        run = run_experiment(config, rounds=4, progress=False)
        return float(run.records["communications"].iloc[-1]) / 4 * config.rounds

    single = communications(*with_step_size(each.arms[SINGLE], 0.003))
    assert single == pytest.approx(communications(), rel=0.05)


ARMS = {FULL: Arm(), DIRECT: Arm(), FROZEN: Arm()}
ONE = Ablation("one", {"loss": -1}, ARMS)


def test_rows_compare_seed_by_seed() -> None:
    values = {FULL: [1.0, 2.0, 3.0, 4.0], DIRECT: [2.0, 3.0, 4.0, 5.5], FROZEN: [1.0, 1.0, 4.0, 4.0]}
    known = {Key("one", arm, seed): {"loss": values[arm][seed]} for arm in ARMS for seed in range(4)}
    rows = list(rows_of(known, [ONE], range(4)))
    full, direct, frozen = rows
    assert full[:3] == ("one", "loss", FULL)
    assert full.better is None
    assert list(direct.better) == [1, 1, 1, 1.5]
    p = p_values(rows)
    assert np.isnan(p[0])
    assert p[1] == 2 * 2 * 2**-4  # the smallest of a two-sided test with four seeds, times two comparisons
    assert list(frozen.better) == [0, -1, 1, 0]
    text = markdown(known, [ONE], range(4))
    assert "| one | loss | direct | 3.625 ± 2.376 | 1.125 ± 0.398 | 0.2500 |" in text
    assert text.endswith("2 comparisons on 4 seeds: the smallest p that they allow is 0.2500.")


def test_p_does_not_depend_on_which_side_is_better() -> None:
    better = np.array([1.0, 1.0, 2.0, -0.5])
    assert two_sided(better) == two_sided(-better) == 2 * 2 / 16  # only one other way of signs has as large a mean
    assert two_sided(np.zeros(4)) == 1
    assert np.isnan(two_sided(np.array([1.0, np.nan])))


def test_arms_with_equal_figures_share_a_row_and_runs_that_diverged_are_counted() -> None:
    known = {Key("one", arm, seed): {"loss": float(seed)} for arm in (DIRECT, FROZEN) for seed in (1, 2)}
    known |= {Key("one", FULL, 1): {"loss": 0.5}, Key("one", FULL, 2): {"loss": 1.0}}
    assert [row.arm for row in rows_of(known, [ONE], (1, 2))] == [FULL, f"{DIRECT} = {FROZEN}"]
    known[Key("one", DIRECT, 2)] = {"loss": float("nan")}
    text = markdown(known, [ONE], (1, 2))
    assert "| one | loss | direct | diverged on 1 of 2 |  |  |" in text
    assert "1 comparisons on 2 seeds" in text


def test_the_step_size_with_the_best_mean_is_chosen_unless_it_diverged() -> None:
    each = Ablation("one", {"loss": -1, "accuracy": 1}, {FULL: Arm(), SINGLE: Arm(("a=1",), ("b", "c"))})
    losses = dict.fromkeys(GRID, 3.0) | {GRID[1]: 1.0, GRID[2]: 0.5}
    known = {job.key: {"loss": losses[size_of(job)], "accuracy": 0.0} for job in tuning_jobs(each)}
    assert len(known) == len(GRID) * len(TUNING_SEEDS)
    assert chosen_step_size(each, SINGLE, known) == GRID[2]
    known[Key("one", label(SINGLE, GRID[2]), TUNING_SEEDS[0])]["loss"] = float("nan")
    assert chosen_step_size(each, SINGLE, known) == GRID[1]
    for_accuracy = each._replace(arms={**each.arms, SINGLE: Arm(("a=1",), ("b", "c"), "accuracy")})
    assert chosen_step_size(for_accuracy, SINGLE, known) == GRID[1]  # all are alike: then by the loss
    known[Key("one", label(SINGLE, GRID[3]), TUNING_SEEDS[0])]["accuracy"] = 0.1
    assert chosen_step_size(for_accuracy, SINGLE, known) == GRID[3]
    assert jobs(each, known, [5])[1] == Job(
        Key("one", label(SINGLE, GRID[1]), 5), ("a=1", f"b={GRID[1]}", f"c={GRID[1]}"), ("loss", "accuracy")
    )


def size_of(job: Job) -> float:
    return float(job.changes[-1].removeprefix("c="))


def test_no_seed_of_the_table_is_tuned_on() -> None:
    assert not set(SEEDS) & set(TUNING_SEEDS)


def test_risk_is_measured_with_the_shipped_weight_of_the_variance() -> None:
    record = pd.Series({"test_loss": 0.2, "test_loss_variance": 0.5, "test_risk": 0.2})
    job = Job(Key("risk_averse", SINGLE, 1), ("problem.risk=0",), ("test_risk",))
    assert figure(job, "test_risk", record) == pytest.approx(0.2 + 0.3 * 0.5)


def test_figures_are_read_as_they_were_written(tmp_path) -> None:
    known = {Key("one", FULL, 1): {"loss": 0.1, "accuracy": 1 / 3}, Key("one", DIRECT, 2): {"loss": 2.0}}
    write(tmp_path / "runs.csv", known)
    assert read(tmp_path / "runs.csv") == known


def test_runs_are_kept_one_by_one_and_not_repeated(tmp_path) -> None:
    """The second run fails; the first is in the file all the same."""
    path, short = tmp_path / "runs.csv", ("rounds=2", "record.every=1")
    good, bad = (
        Job(Key("quadratic", arm, 1), (*short, change), ("lower_error_sq",))
        for arm, change in ((FULL, "seed=0"), (DIRECT, "algorithm=nothing"))
    )
    with pytest.raises(ConfigError, match="unknown algorithm 'nothing'"):
        run_all([good, bad], {}, path, processes=1)
    assert list(read(path)) == [good.key]
    known = {good.key: {"lower_error_sq": 7.0}}
    run_all([good], known, None, processes=1)
    assert known[good.key] == {"lower_error_sq": 7.0}


def test_intervals_are_student_s() -> None:
    assert interval(np.array([1.0, 2.0, 3.0])) == "2.000 ± 2.484"  # 4.303·1/√3


def test_the_documentation_has_the_table_of_the_runs() -> None:
    text = (ROOT / "docs" / "problems.md").read_text()
    assert markdown(read(CSV), ABLATIONS, SEEDS) in text
    assert of_the_term(read(CSV), ABLATIONS, SEEDS) in text


def test_an_arm_that_is_far_away_does_not_set_the_axis(tmp_path) -> None:
    rows = [
        Row("one", "loss", arm, np.array(values), None)
        for arm, values in ((FULL, [0.9, 1.0]), (DIRECT, [1.0, 1.1]), (FROZEN, [9.0, 9.0]))
    ]
    low, high = limits(rows)
    assert low < 0.9 < 1.1 < high < 1.2
    draw(read(CSV), ABLATIONS, SEEDS, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
