"""Successive halving: which trials go on at a rung, by what their folders hold."""

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from small_sweeps import CONFIGS, all_records, sweep_of
from tasks import made_record, reference

from fedmbo_ray import ConfigError
from fedmbo_ray.config.schema import Fields
from fedmbo_ray.runs.loop import run as run_of
from fedmbo_ray.sweeps.folder import SweepFolder, numbered
from fedmbo_ray.sweeps.progress import WAITING, SweepProgress
from fedmbo_ray.sweeps.proof import prove
from fedmbo_ray.sweeps.ranking import finish, ranked
from fedmbo_ray.sweeps.rungs import going_on, rounds_in_all, stages
from fedmbo_ray.sweeps.schedulers import Halving
from fedmbo_ray.sweeps.schema import SweepPlan

DIVERGED: Fields = {"status": "diverged", "reason": "|x| is large"}


class Small:
    """A sweep of some trials over 40 rounds, and what they are made to have done."""

    def __init__(self, path: Path, trials: int, *words: str, grace: int = 10, reduction: int = 2) -> None:
        steps = [0.01 * (number + 1) for number in range(trials)]
        scheduler = f"tune.scheduler={{name: halving, grace: {grace}, reduction: {reduction}}}"
        self.sweep: SweepPlan = sweep_of(f"algorithm.step_size={{zip: {steps}}}", scheduler, *words)
        self.folder, self.points = SweepFolder(path), self.sweep.points() or []
        with self.folder.claimed(self.sweep.plain()):
            pass

    def ran(self, round: int, scores: dict[int, float | None], seed: int = 0, **ending: object) -> None:
        """Trials have come to a round, each with a score."""
        for number, score in scores.items():
            trial = self.folder.trial(numbered(number))
            if not trial.point:
                trial.begin(self.points[number])
            trial.run(seed).path.mkdir(exist_ok=True)
            trial.run(seed).append(made_record(round, upper_loss=score, **ending))

    def next(self) -> tuple[list[int], int | None]:
        return going_on(self.sweep, self.folder, self.points)

    def statuses(self) -> str:
        """The first letters of how the trials ended, by number."""
        return "".join(trial.status[0] for trial in self.folder.trials())

    def reason(self, number: int) -> str:
        return self.folder.trial(numbered(number)).reason


def test_the_best_go_on_when_all_have_come_and_are_the_same_when_asked_again(tmp_path: Path) -> None:
    small = Small(tmp_path, 4)
    assert small.next() == ([0, 1, 2, 3], 10)
    small.ran(10, {3: 0.1, 0: 0.4})
    assert small.next() == ([1, 2], 10)
    small.ran(5, {1: 0.0})  # it is not there yet
    assert small.next() == ([1, 2], 10)
    small.ran(10, {1: 0.3, 2: 0.2})
    for _ in range(2):
        assert small.next() == ([2, 3], 20)
    assert small.statuses() == "ssrr"
    assert small.reason(1) == "place 3 of 4 in round 10"
    small.ran(15, {2: 9.0, 3: 0.0})  # between rungs, scores do not matter
    small.ran(20, {2: 0.05, 3: 0.07})
    assert small.next() == ([2], None)  # nobody is left to wait for
    small.ran(40, {2: 0.9}, status="finished")
    assert small.next() == ([], None)
    assert small.statuses() == "ssfs"
    best = finish(small.sweep, small.folder)
    assert best is not None
    assert (best.trial, best.score) == ("00002", 0.9)  # the only one that ran to its end
    assert [each.name for each in ranked(small.folder, small.sweep.tune)] == ["00002", "00003", "00001", "00000"]


def test_equal_scores_go_by_number_and_a_place_is_rounded_up(tmp_path: Path) -> None:
    small = Small(tmp_path, 5, reduction=3)
    small.ran(10, dict.fromkeys((4, 2, 0, 3, 1), 0.5))
    assert small.next() == ([0, 1], 30)
    assert [Halving(reduction=3).places(trials) for trials in (1, 2, 3, 4, 9, 10)] == [1, 1, 1, 2, 3, 4]


def test_the_largest_score_can_be_the_best(tmp_path: Path) -> None:
    small = Small(tmp_path, 3, "tune.mode=max", reduction=7)
    small.ran(10, {0: 0.1, 1: 0.3, 2: 0.2})
    assert small.next() == ([1], None)


def test_what_diverged_failed_or_has_no_score_is_last_and_takes_no_place(tmp_path: Path) -> None:
    small = Small(tmp_path, 6)
    small.ran(5, {0: 0.0}, **DIVERGED)
    small.ran(5, {1: 0.0})
    small.folder.trial("00001").end("failed", "no memory")
    small.ran(10, {2: None, 3: 9.0, 4: 8.0, 5: None})
    assert small.next() == ([3, 4], 20)  # of three places
    assert small.statuses() == "dfsrrs"
    small.ran(15, {3: 0.0, 4: 0.0}, **DIVERGED)
    assert small.next() == ([], None)
    assert small.statuses() == "dfsdds"


def test_one_that_failed_before_may_take_the_place_of_another(tmp_path: Path) -> None:
    small = Small(tmp_path, 3, reduction=3)
    small.ran(10, {0: 0.2, 1: 0.1})
    small.ran(5, {2: 0.0})
    small.folder.trial("00002").end("failed", "no memory")
    assert small.next() == ([1], None)
    small.ran(40, {1: 0.1}, status="finished")
    assert small.next() == ([], None)
    small.folder.trial("00002").begin(small.points[2])  # when the sweep is resumed
    assert small.next() == ([2], 10)
    assert small.statuses() == "sfr"
    small.ran(10, {2: 0.05})
    assert small.next() == ([2], None)
    assert small.statuses() == "ssr"


def test_a_failed_trial_that_comes_back_leaves_no_trace(tmp_path: Path) -> None:
    """The other, which had gone on to its end in its place, ends at the rung, and its later records are gone."""
    words = ("algorithm.step_size={zip: [0.01, 0.02, 0.03]}", "record.every=5", "record.checkpoint_every=5")
    sweep = sweep_of(*words, "tune.scheduler={name: halving, grace: 10, reduction: 3}")
    whole = reference(sweep, tmp_path / "whole")
    expected = ranked(whole, sweep.tune)
    best = expected[0].name
    disturbed = SweepFolder(Path(shutil.copytree(whole.path, tmp_path / "disturbed")))
    failed = disturbed.trial(best)
    for run in failed.runs:
        run.cut(5)
    failed.end("failed", "no memory")
    numbers, _ = going_on(sweep, disturbed, sweep.points() or [])
    second = disturbed.trial(numbered(numbers[0]))
    second.begin(second.point)
    list(run_of(sweep.config(second.point), second.run(0), resume=True))
    assert finish(sweep, disturbed).trial == second.name
    reference(sweep, disturbed.path)
    assert ranked(disturbed, sweep.tune) == expected
    assert all_records(disturbed.path) == all_records(whole.path)
    assert disturbed.best_file.read_text() == whole.best_file.read_text()
    prove(sweep, disturbed)


def test_a_trial_of_several_seeds_has_their_mean_and_diverges_with_one_of_them(tmp_path: Path) -> None:
    small = Small(tmp_path, 3, "tune.seeds=2", reduction=3)
    small.ran(10, {0: 0.1, 1: 0.4, 2: 0.0})
    small.ran(10, {0: 0.6, 1: 0.2}, seed=1)
    assert small.next() == ([2], 10)
    small.ran(5, {2: 0.0}, seed=1, **DIVERGED)
    assert small.next() == ([1], None)
    assert small.statuses() == "srd"
    assert small.reason(2) == DIVERGED["reason"]


def test_a_trial_that_is_shorter_keeps_its_last_score_and_is_not_stopped(tmp_path: Path) -> None:
    small = Small(tmp_path, 3, "rounds={zip: [5, 40, 40]}")
    small.ran(5, {0: 0.2}, status="finished")
    small.ran(10, {1: 0.1, 2: 0.3})
    assert small.next() == ([1], 20)
    small.ran(20, {1: 0.25})
    assert small.next() == ([], None)
    assert small.statuses() == "fss"


def test_there_are_rungs_below_the_last_round_while_there_is_somebody_to_wait_for(tmp_path: Path) -> None:
    assert list(Halving(grace=10, reduction=2).rungs(40)) == [10, 20]
    assert stages(Small(tmp_path / "a", 4, grace=40).sweep, 4) == [(40, 4)]
    alone = Small(tmp_path / "b", 1)
    assert alone.next() == ([0], None)
    assert stages(alone.sweep, 1) == [(40, 1)]
    quickstart = sweep_of(file=CONFIGS / "quickstart.yaml")
    assert stages(quickstart, 12) == [(30, 12), (90, 4), (270, 2), (500, 1)]
    assert rounds_in_all(quickstart, 12) == 1190


def test_a_folder_of_another_point_counts_as_none(tmp_path: Path) -> None:
    small = Small(tmp_path, 2)
    small.ran(10, {0: 0.1, 1: 0.2})
    small.folder.trial("00001").begin({"algorithm.step_size": 7.0})
    assert small.next() == ([1], 10)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tune.search=optuna"], "search must be grid or random, but is optuna"),
        (["record.every=4"], "every rung must be a multiple of record.every=4, .* but got round 10"),
        (["tune.metric=phi", "record.exact_every=20"], "a multiple of record.exact_every=20, .* but got round 10"),
        (["tune.scheduler.reduction=1"], "greater than or equal to 2, but got 1"),
    ],
)
def test_a_sweep_whose_rungs_can_t_be_is_refused(words: list[str], said: str) -> None:
    halving = ("algorithm.step_size={uniform: [0.01, 0.1]}", "tune.scheduler={name: halving, grace: 10, reduction: 2}")
    assert sweep_of(*halving, "tune.metric=phi", "record.exact_every=5", "record.every=2").rounds == 40
    assert sweep_of(*halving, "record.every=4", "tune.scheduler.grace=40").rounds == 40  # no rungs
    with pytest.raises(ConfigError, match=said):
        sweep_of(*halving, *words)


def test_progress_tells_who_waits_and_counts_the_rounds_that_are_to_be_run(tmp_path: Path, monkeypatch, capsys) -> None:
    small = Small(tmp_path, 4)  # 4 trials to round 10, 2 to 20, 1 to 40: 80 rounds, of which 20 are done
    now, figures = 0.0, {"communications": 1, "samples": 1, "floats_up": 1, "floats_down": 1, "wall_seconds": 1.0}
    small.ran(10, {2: 0.2, 3: 0.3}, **figures)
    monkeypatch.setattr("time.monotonic", lambda: now)
    with SweepProgress(small.sweep, small.folder, 4, Console(file=io.StringIO())) as progress:
        for number in range(2):
            small.ran(10, {number: 0.1 * number})
            progress.heard(numbered(number), 10, 0.25, 0.1 * number)
            progress.ended(numbered(number), WAITING)
        now = 6.0
        lead = "best upper_loss so far 0 (trial 00000)"
        assert progress.line() == f"0/4 trials done, 0 running, 4 waiting; {lead}; ETA 12 s"
        assert small.next() == ([0, 1], 20)
        progress.decided()
        progress.heard("00000", 12, 0.3, 0.0)
        assert progress.line().startswith(f"2/4 trials done, 1 running, 1 waiting; {lead}")
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("4 trials, 0 of them done before")
    assert [line.partition(":")[0] for line in said[1:]] == [
        "trial 00002 stopped in round 10",
        "trial 00003 stopped in round 10",
    ]
