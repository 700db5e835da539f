"""Sweeps on the cluster: every search and scheduler, pools of actors, trials that fail."""

import io
import os
import threading
from pathlib import Path

import pytest
from forked import Forks
from rich.console import Console
from small_sweeps import CONFIGS, all_records, by_hand, digests, lines_of, sweep_of, wait_for
from tasks import reference

from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.ranking import finish, ranked
from fedmbo_ray.sweeps.remote_folder import Home, home_of
from fedmbo_ray.sweeps.schema import SweepPlan

QUADRATIC, QUICKSTART = CONFIGS / "quadratic.yaml", CONFIGS / "quickstart.yaml"
ALPHAS = "algorithm.step_size={grid: [0.01, 0.02, 0.04, 0.08]}"


def run_on(cluster: None, path: Path, *words: str, file: Path = QUADRATIC) -> tuple[SweepPlan, SweepFolder]:
    from fedmbo_ray.sweeps.tuner import run_trials

    sweep, folder = sweep_of(*words, file=file), SweepFolder(path)
    with folder.claimed(sweep.plain()):
        run_trials(sweep, folder, Console(file=io.StringIO()))
    return sweep, folder


@pytest.mark.parametrize(
    ("asked", "actor"),
    [
        (["clients.actors=2", "clients.cpus_per_actor=0.5"], {"CPU": 0.5}),
        pytest.param(
            ["clients.actors=4", "clients.cpus_per_actor=0.25", "clients.gpus_per_actor=0.25"],
            {"CPU": 0.25, "GPU": 0.25},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_pool_of_actors_is_placed_as_asked_and_computes_the_same_bits(cluster, tmp_path: Path, asked, actor) -> None:
    import ray
    from ray.util import placement_group_table

    seen: list[tuple[list[dict], dict]] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            groups = [each for each in placement_group_table().values() if each["state"] == "CREATED"]
            if groups:
                seen.append(([dict(bundle) for bundle in groups[0]["bundles"].values()], ray.available_resources()))

    watcher = threading.Thread(target=look)
    watcher.start()
    words = ("algorithm.step_size=0.02", "rounds=150", "tune.retries=0")
    try:
        _, pooled = run_on(cluster, tmp_path / "pooled", *words, "clients.backend=ray", *asked)
    finally:
        over.set()
        watcher.join()
    count = int(asked[0].split("=")[1])
    if "GPU" in actor:  # which nobody has: they are placed, and then can't compute
        assert [trial.status for trial in pooled.trials()] == ["failed"]
        assert "CUDA" in pooled.trials()[0].reason
    assert all(bundles == [{"CPU": 1.0}, *[actor] * count] for bundles, _ in seen)
    # Each actor has the whole of its own bundle: at some moment nothing is left of any.
    used = [
        sum(name.startswith(f"{kind}_group_") and name.count("_") == 3 for name in left)
        for _, left in seen
        for kind in [list(actor)[-1]]
    ]
    assert min(used) == 0
    if "GPU" in actor:
        return
    assert "ray, " in pooled.trials()[0].runs[0].records()[-1]["backend"]
    _, alone = by_hand(tmp_path / "alone", *words)
    assert digests(pooled) == digests(alone)


ONE = "tune.concurrency=1"  # process, which runs one trial after the other


@pytest.mark.parametrize(
    "words",
    [
        ["algorithm.step_size={loguniform: [0.01, 0.1]}", "tune.search=optuna", "tune.samples=4", ONE],
        [ALPHAS, "tune.scheduler={name: asha, grace: 10, reduction: 2}", ONE],
        pytest.param(
            [
                "algorithm.step_size={loguniform: [0.01, 0.1]}",
                "tune.search=optuna",
                "tune.samples=4",
                "tune.scheduler={name: asha, grace: 10, reduction: 2}",
                ONE,
            ],
            marks=pytest.mark.slow,
        ),
        ["algorithm.step_size={loguniform: [0.01, 0.1]}", "tune.scheduler={name: pbt, interval: 20}", "tune.samples=2"],
        [ALPHAS, "tune.seeds=2", ONE],
    ],
    ids=["optuna", "asha", "optuna and asha", "pbt", "seeds"],
)
def test_every_search_and_scheduler_runs_and_is_done_when_it_is_done(cluster, tmp_path: Path, words) -> None:
    words = [*words, "record.checkpoint_every=5", "record.every=5"]
    sweep, folder = run_on(cluster, tmp_path / "a", *words)
    trials = ranked(folder, sweep.tune)
    points = sweep.points()
    assert len(trials) == (sweep.tune.samples if points is None else len(points)) >= 2
    assert {each.status for each in trials} <= {"finished", "stopped"}
    assert trials[0].status == "finished"
    assert trials[0].score is not None
    before = digests(folder)
    _, again = run_on(cluster, tmp_path / "a", *words)
    assert digests(again) == before


HALVING = (
    "rounds=30",
    "algorithm.step_size={grid: [0.01, 0.02, 0.05]}",
    "tune.scheduler={name: halving, grace: 5, reduction: 3}",
    "tune.concurrency=2",
    "record.every=5",
    "record.checkpoint_every=7",
)


def test_halving_decides_the_same_with_one_process_or_two_after_a_kill_and_in_copies(
    cluster: str, forks: Forks, tmp_path: Path, monkeypatch
) -> None:
    sweep, path = sweep_of(*HALVING, file=QUICKSTART), tmp_path / "a"
    expected = reference(sweep, tmp_path / "alone")
    program = f"import fedmbo_ray; fedmbo_ray.run_sweep('quickstart', *{HALVING}, out='a', track=False)"
    process = forks.start("-c", program, cwd=tmp_path, env={**os.environ, "RAY_ADDRESS": cluster})
    wait_for(lambda: process.poll() is not None or any(lines_of(each) > 2 for each in path.glob("trials/*")))
    process.kill()  # after the first rung, in round 5
    process.wait()
    assert not (path / "best.yaml").exists()

    def away(folder: SweepFolder) -> Home:
        home = home_of(folder)
        assert home.keeper is not None
        return home._replace(identity="one that no machine sees")

    monkeypatch.setattr("fedmbo_ray.sweeps.tuner.home_of", away)
    _, folder = run_on(cluster, path, *HALVING, file=QUICKSTART)
    finish(sweep, folder)
    assert [(each.status, each.reason) for each in folder.trials()] == [
        (each.status, each.reason) for each in expected.trials()
    ]
    assert [each.status for each in folder.trials()].count("stopped") == 8
    assert all_records(path) == all_records(expected.path)
    assert folder.best_file.read_bytes() == expected.best_file.read_bytes()


@pytest.mark.slow
def test_a_point_may_be_proposed_more_than_once(cluster, tmp_path: Path) -> None:
    words = ("algorithm.step_size={choice: [0.01, 0.02]}", "tune.search=optuna", "tune.samples=4")
    sweep, folder = run_on(cluster, tmp_path / "a", *words)
    trials, before = ranked(folder, sweep.tune), digests(folder)
    assert [each.status for each in trials] == ["finished"] * 4
    assert len({str(each.point) for each in trials}) <= 2
    _, again = run_on(cluster, tmp_path / "a", *words)
    assert digests(again) == before


def test_trials_that_diverge_or_raise_do_not_stop_the_others(cluster, tmp_path: Path) -> None:
    words = ("algorithm.step_size={grid: [0.02, 1000]}", "clients.block_size={grid: [4, 5]}", "tune.retries=0")
    sweep, folder = sweep_of(*words), SweepFolder(tmp_path / "a")
    with folder.claimed(sweep.plain()):
        folder.trial("00001").begin((sweep.points() or [])[1])
        folder.trial("00001").run(0).path.write_text("a file where a folder should be")
        from fedmbo_ray.sweeps.tuner import run_trials

        run_trials(sweep, folder, Console(file=io.StringIO()))
    statuses = {each.name: each.status for each in ranked(folder, sweep.tune)}
    assert statuses == {"00000": "finished", "00001": "failed", "00002": "finished", "00003": "diverged"}
    assert "NotADirectoryError" in folder.trial("00001").reason or "FileExistsError" in folder.trial("00001").reason
