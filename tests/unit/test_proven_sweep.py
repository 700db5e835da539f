"""A sweep's folder proves itself when the sweep goes on: no trial meets another's point, config or records."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_sweeps import all_records, sweep_of
from tasks import reference, tiny_config

from fedmbo_ray.config.overrides import changed
from fedmbo_ray.core.errors import FedmboError, FolderDamaged
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.loop import run as run_of
from fedmbo_ray.sweeps.continuation import continued
from fedmbo_ray.sweeps.folder import SweepFolder, TrialFolder
from fedmbo_ray.sweeps.proof import prove, require_same_run
from fedmbo_ray.sweeps.ranking import finish
from fedmbo_ray.sweeps.schema import SweepPlan

RECORD = ("record.every=5", "record.checkpoint_every=7", "tune.seeds=2", "rounds=20")
SMALL = ("algorithm.lower.steps=2", "algorithm.hypergradient.terms=2")
GRID = ("algorithm.step_size={grid: [0.01, 0.02, 0.03]}", *RECORD, *SMALL)
HALVED = (*GRID, "tune.scheduler={name: halving, grace: 5, reduction: 2}")
KINDS = {"grid": GRID, "halving": HALVED}


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished sweeps."""
    places = {kind: tmp_path_factory.mktemp("sweeps") / kind for kind in KINDS}
    for kind, path in places.items():
        reference(sweep_of(*KINDS[kind]), path)
    return places


def gone_on(path: Path, *words: str) -> SweepPlan:
    """As `fedmbo tune --resume` goes on, but in this process."""
    sweep = continued(SweepFolder(path), None, words)
    reference(sweep, path)
    return sweep


def edited(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        text = (path / name).read_text()
        assert old in text
        (path / name).write_text(text.replace(old, new, 1))

    return edit


def without_line(name: str, number: int) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        lines = (path / name).read_text().splitlines(keepends=True)
        (path / name).write_text("".join(lines[:number] + lines[number:][1:]))

    return edit


def swapped(one: str, other: str) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        for old, new in ((one, "third"), (other, one), ("third", other)):
            if (path / old).exists():  # a trial that was stopped has no result
                (path / old).rename(path / new)

    return edit


def several(*edits: Callable[[Path], None]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        for each in edits:
            each(path)

    return edit


def removed(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink(missing_ok=True)


RUN, NEXT, OTHER_SEED = "trials/00000/seed_000", "trials/00001/seed_000", "trials/00000/seed_001"
REFUSED = {
    "a line missing": (without_line(f"{RUN}/records.jsonl", 1), "records"),
    "a figure changed": (edited(f"{RUN}/records.jsonl", '"upper_loss": ', '"upper_loss": 1'), "records"),
    "a seed in the sweep": (lambda path: (path / "sweep.yaml").open("a").write("seed: 3\n"), "sweep.yaml was changed"),
    "another metric": (edited("sweep.yaml", "metric: upper_loss", "metric: lower_loss"), "sweep.yaml was changed"),
    "the config of a run": (edited(f"{RUN}/config.yaml", "seed: 0", "seed: 3"), "these keys differ: seed; put"),
    "a point": (edited("trials/00000/point.json", "0.01", "0.04"), "or has another point"),
    "no point": (removed("trials/00000/point.json"), "or has another point"),
    "two trials": (swapped("trials/00000", "trials/00001"), "or has another point"),
    "two runs": (swapped(RUN, NEXT), "these keys differ: algorithm.step_size"),
    "two seeds": (swapped(RUN, OTHER_SEED), "these keys differ: seed"),
    "records of two trials": (swapped(f"{RUN}/records.jsonl", f"{NEXT}/records.jsonl"), "records"),
    "records and results of two trials": (
        several(
            swapped(f"{RUN}/records.jsonl", f"{NEXT}/records.jsonl"),
            swapped(f"{RUN}/result.npz", f"{NEXT}/result.npz"),
        ),
        "records",
    ),
    "one trial too many": (
        lambda path: shutil.copytree(path / "trials/00000", path / "trials/00007"),
        "00007 is not a trial of this sweep",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_changed_after_its_end_is_found_out(kind: str, fault: str, sweeps, tmp_path: Path) -> None:
    edit, said = REFUSED[fault]
    path = shutil.copytree(sweeps[kind], tmp_path / "sweep")
    edit(path)
    before = (path / "best.yaml").read_text()
    with pytest.raises(FedmboError, match=said) as error:
        gone_on(path)
    assert "\n" not in str(error.value)
    assert "put" in str(error.value)
    assert (path / "best.yaml").read_text() == before


REPAIRED = {
    "result of another seed": swapped(f"{RUN}/result.npz", f"{OTHER_SEED}/result.npz"),
    "no result": removed(f"{NEXT}/result.npz"),
    "an empty result": lambda path: (path / NEXT / "result.npz").write_bytes(b""),
    "an empty config": lambda path: (path / RUN / "config.yaml").write_text(""),
    "no end": without_line("trials/00002/seed_001/records.jsonl", -1),
    "a foreign seed": lambda path: shutil.copytree(path / RUN, path / "trials/00000/seed_007"),
    "a foreign file": lambda path: (path / "trials" / "notes.txt").write_text("mine"),
    "an empty trial": lambda path: (path / "trials" / "00009").mkdir(),
    "nothing": lambda path: None,
}


@pytest.mark.parametrize("fault", REPAIRED)
@pytest.mark.parametrize("kind", KINDS)
def test_what_can_be_made_again_is(kind: str, fault: str, sweeps, tmp_path: Path) -> None:
    path = shutil.copytree(sweeps[kind], tmp_path / "sweep")
    REPAIRED[fault](path)
    sweep = gone_on(path)
    shutil.rmtree(path / "trials" / "00009", ignore_errors=True)
    assert finish(sweep, SweepFolder(path)) == finish(sweep, SweepFolder(sweeps[kind]))
    (path / "trials" / "notes.txt").unlink(missing_ok=True)
    assert all_records(path) == all_records(sweeps[kind])
    for file in sweeps[kind].glob("trials/*/*/result.npz"):
        assert (path / file.relative_to(sweeps[kind])).read_bytes() == file.read_bytes()


def test_keys_that_change_no_result_may_change_and_others_not(sweeps, tmp_path: Path) -> None:
    path = shutil.copytree(sweeps["grid"], tmp_path / "sweep")
    gone_on(path, "tune.concurrency=2", "clients.actors=3")
    assert SweepFolder(path).fields()["tune"]["concurrency"] == 2
    with pytest.raises(FedmboError, match=r"resume must keep the sweep, but these keys differ: seed$"):
        gone_on(path, "seed=3")


def test_the_records_of_a_trial_that_was_stopped_are_proven_to_the_last(sweeps, tmp_path: Path) -> None:
    path = shutil.copytree(sweeps["grid"], tmp_path / "sweep")
    sweep, folder = continued(SweepFolder(path), None, ()), SweepFolder(path)
    trial = folder.trial("00001")
    for run in trial.runs:  # as asha stops one: between two checkpoints
        lines = run.records_file.read_text().splitlines(keepends=True)
        run.records_file.write_text("".join(lines[:4]))
        run.result_file.unlink()
        for number in (20, 21):
            (run.checkpoints / f"{number:08d}.npz").unlink(missing_ok=True)
    trial.end("stopped")
    prove(sweep, folder)
    assert [len(run.records()) for run in trial.runs] == [4, 4]
    run.records_file.write_text("".join([*lines[:3], lines[3].replace('"upper_loss": ', '"upper_loss": 1')]))
    with pytest.raises(
        FolderDamaged, match=r"records of .*00001 were changed after the trial had ended; put them back"
    ):
        prove(sweep, folder)
    ending = json.loads(trial.ending_file.read_text())
    trial.ending_file.write_text(json.dumps({**ending, "records": 5}))
    with pytest.raises(FolderDamaged):
        prove(sweep, folder)


def test_a_sweep_of_an_older_version_has_no_digest(sweeps, tmp_path: Path) -> None:
    path = shutil.copytree(sweeps["grid"], tmp_path / "sweep")
    without_line("sweep.yaml", 0)(path)
    edited("sweep.yaml", "concurrency: null", "concurrency: 3")(path)
    gone_on(path)
    assert (path / "sweep.yaml").read_text().startswith("# SHA-256 of what follows: ")


def test_a_fedmbo_sweep_may_be_the_start_of_another(sweeps) -> None:
    assert changed({}, []) == {}
    sweep = sweep_of(*GRID)
    assert continued(SweepFolder(sweeps["grid"]), sweep.plain(), ()).dims == sweep.dims


@pytest.mark.parametrize("killed", ["point.json", "seed_000"])
def test_a_trial_that_is_killed_while_another_point_begins_can_be_resumed(killed: str, tmp_path: Path, monkeypatch):
    """As trials of `pbt` do; the order in which a folder's files are removed is not known."""
    trial = TrialFolder(tmp_path / "trials" / "00000", 1)
    trial.begin({"algorithm.step_size": 0.01})
    list(run_of(tiny_config(), trial.run(0)))

    def half_removed(path: Path, **more: object) -> None:
        if path.exists():
            shutil.move(path / killed, tmp_path / "gone")
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", half_removed)
        with pytest.raises(KeyboardInterrupt):
            trial.begin({"algorithm.step_size": 0.02})
    folder = SweepFolder(tmp_path)
    sweep = sweep_of("algorithm.step_size={uniform: [0.01, 0.03]}", "tune.scheduler={name: pbt, interval: 10}")
    with folder.claimed(sweep.plain()):
        assert folder.begun() == []
        prove(sweep, folder)
    assert not list(tmp_path.rglob(".*.removed"))
    trial.begin({"algorithm.step_size": 0.02})
    assert not trial.runs


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_config_only_a_checkpoint_proves_a_run(kind: str, sweeps, tmp_path: Path) -> None:
    path = shutil.copytree(sweeps[kind], tmp_path / "sweep")
    (path / RUN / "config.yaml").write_text("")
    require_same_run(RunFolder(path / RUN), tiny_config())
    assert (path / RUN / "config.yaml").read_text() == ""  # a check changes nothing
    swapped(f"{RUN}/checkpoints", f"{NEXT}/checkpoints")(path)
    with pytest.raises(FolderDamaged, match=r"is of another config: algorithm\.step_size"):
        gone_on(path)
    shutil.rmtree(path / RUN / "checkpoints")
    swapped(f"{RUN}/records.jsonl", f"{NEXT}/records.jsonl")(path)
    shutil.rmtree(path / "trials/00001")
    gone_on(path)
    assert all_records(path) == all_records(sweeps[kind])
