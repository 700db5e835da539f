"""What a real MLflow is told of sweeps, and shows in a real browser."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import mlflow
import numpy as np
import pytest
from browser import browser, needs_browser
from browser import wait_for as page_shows
from forked import Forks
from mlflow import MlflowClient
from servers import free_port, served
from small_sweeps import SMALL, by_hand, shown, sweep_of, wait_for
from tasks import reference

from fedmbo_ray.data.datasets import data_root, load_dataset
from fedmbo_ray.sweeps.ranking import ranked
from fedmbo_ray.tracking import client_picture
from fedmbo_ray.tracking.background import BackgroundTracking
from fedmbo_ray.tracking.connection import make_client, make_store
from fedmbo_ray.tracking.sweep_tracker import SweepTracker


@pytest.fixture(autouse=True)
def _here(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(database)  # where `mlflow.pyfunc` looks


def test_mlflow_is_told_once_however_often_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alphas = "algorithm.step_size={grid: [0.01, 0.02, 0.04, 0.08]}"
    sweep, folder = by_hand(tmp_path / "sweeps/hand", alphas, "tune.seeds=2")
    tracker = SweepTracker(sweep, folder, "a test")
    tracker.connect()
    sent, log_batch = [], tracker.client.log_batch

    def breaking(*args, **kwargs):
        sent.append(args)
        if len(sent) % 5 == 0:
            raise ConnectionError("gone")
        return log_batch(*args, **kwargs)

    monkeypatch.setattr(tracker.client, "log_batch", breaking)
    following = BackgroundTracking(tracker)
    wait_for(lambda: following.attempt(tracker.update))
    once = shown(tracker.uri, "hand")
    other = SweepTracker(sweep, folder, "a test")  # somebody else, who knows only what the server knows
    other.update()
    other.conclude()
    other.conclude()  # a finished sweep that is continued
    again = shown(tracker.uri, "hand")
    trials = {key: value for key, value in again.items() if key}
    assert trials == {key: value for key, value in once.items() if key}
    assert len(trials) == 4 + 8
    assert trials["00001/1"]["parent"] == "00001"
    means = [
        (a[1] + b[1]) / 2 for a, b in zip(*(trials[f"00001/{s}"]["metrics"]["upper_loss"] for s in (0, 1)), strict=True)
    ]
    assert [value for _, value in trials["00001"]["metrics"]["upper_loss"]] == pytest.approx(means, rel=1e-12)
    best = ranked(folder, sweep.tune)[0]
    assert again[""]["metrics"]["best_upper_loss"] == [(0, best.score)]
    assert again[""]["status"] == ("FINISHED", "finished")


def test_the_best_model_can_be_loaded_and_knows_what_was_learned(tmp_path: Path) -> None:
    sweep = sweep_of(*SMALL[1:], "algorithm.step_size=0.05", "rounds=20", file=Path(SMALL[0]))
    folder = reference(sweep, tmp_path / "sweeps/a")
    tracker = SweepTracker(sweep, folder, "a test")
    tracker.conclude()
    (logged,) = tracker.client.search_logged_models([tracker.pages.experiment_id])
    assert logged.source_run_id == tracker.runs[ranked(folder, sweep.tune)[0].name].run_id
    model = mlflow.pyfunc.load_model(logged.model_uri)
    assert model.metadata.signature is not None
    digits = load_dataset("digits", data_root())
    right = model.predict(digits.test_inputs.astype(np.float32)).argmax(1) == digits.test_targets
    last = folder.trial(ranked(folder, sweep.tune)[0].name).records()[-1]
    assert right.mean() == pytest.approx(last["test_accuracy"])


def test_the_best_trial_is_marked_alone(tmp_path: Path) -> None:
    sweep, folder = by_hand(tmp_path / "sweeps/hand", "algorithm.step_size={grid: [0.01, 0.02]}")
    tracker = SweepTracker(sweep, folder, "a test")
    tracker.update()
    for best in "00000", "00001":
        tracker._mark_best(folder.trial(best))
        marked = tracker.experiment.runs("tags.best = 'yes'")
        assert [run.data.tags["trial"] for run in marked] == [best]


def test_a_trial_that_was_stopped_and_goes_on_after_all_is_shown_so(tmp_path: Path) -> None:
    """So it is with `halving` when a trial that had failed is tried again, and is among the best."""
    sweep, folder = by_hand(tmp_path / "sweeps/hand", "algorithm.step_size={grid: [0.01, 0.02]}", "tune.seeds=2")
    folder.trial("00001").end("stopped", "place 2 of 2 in round 20")
    SweepTracker(sweep, folder, "a test").conclude()
    folder.trial("00001").begin(folder.trial("00001").point)
    folder.trial("00000").end("stopped", "place 2 of 2 in round 20")
    tracker = SweepTracker(sweep, folder, "a test")
    tracker.conclude()
    tags = {
        run.data.tags["fedmbo.key"]: [run.data.tags.get(key) for key in ("status", "reason")]
        for run in tracker.experiment.runs("")
    }
    assert tags["00000"] == ["stopped", "place 2 of 2 in round 20"]
    assert tags["00001"] == ["finished", ""]
    assert tags["00001/1"][0] == "finished"


def test_a_sweep_shows_its_clients_once(tmp_path: Path) -> None:
    sweep = sweep_of(*SMALL[1:], "rounds=2", "tune.seeds=2", file=Path(SMALL[0]))
    folder = reference(sweep, tmp_path / "sweeps/a")
    for _ in range(2):  # the second time somebody else, who knows only what the server knows
        SweepTracker(sweep, folder, "a test").conclude()
    tracker = SweepTracker(sweep, folder, "a test")
    tracker.connect()
    assert pictured(tracker) == {"": "digits, by_digits (digits 2), 50 clients"}
    parent = tracker.client.get_run(tracker.runs[""].run_id)
    assert "/artifacts/clients.png" in parent.data.tags["mlflow.note.content"]
    assert len(tracker.client.get_metric_history(parent.info.run_id, "clients/label_distance")) == 1


def test_trials_whose_clients_differ_show_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawings: list[tuple[object, ...]] = []
    draw = client_picture.made_picture
    monkeypatch.setattr(client_picture, "made_picture", lambda *args: [drawings.append(args), draw(*args)][1])
    words = ["data.partition={grid: [iid, sorted_shards]}", "algorithm.lower.step_size=0.5", "rounds=2", "tune.seeds=2"]
    sweep = sweep_of(*SMALL[1:], *words, file=Path(SMALL[0]))
    tracker = SweepTracker(sweep, reference(sweep, tmp_path / "sweeps/a"), "a test")
    tracker.conclude()
    titles = ["digits, iid, 50 clients", "digits, sorted_shards (shards 1), 50 clients"]
    found = pictured(tracker)
    assert sorted(found.values()) == sorted(2 * titles)
    assert found.keys() == {trial.name for trial in tracker.folder.trials()}
    assert len(drawings) == 2
    distances = {
        run.data.tags["clients"]: run.data.metrics["clients/label_distance"]
        for run in tracker.experiment.runs("tags.clients LIKE '%'")
    }
    assert distances[titles[0]] < 0.3 < 0.7 < distances[titles[1]]


def pictured(tracker: SweepTracker) -> dict[str, str]:
    """The runs of a sweep, by their key, that have a picture of clients, and what they say about it."""
    found = {}
    for key, run in tracker.runs.items():
        tag = tracker.client.get_run(run.run_id).data.tags.get("clients")
        names = [each.path for each in tracker.client.list_artifacts(run.run_id)]
        assert ("clients.png" in names) == ("clients.txt" in names) == (tag is not None)
        found |= {} if tag is None else {key: tag}
    return found


@needs_browser
def test_a_person_finds_the_sweep_in_mlflow(database: str, tmp_path: Path) -> None:
    sweep = sweep_of(*SMALL[1:], file=Path(SMALL[0]))
    SweepTracker(sweep, reference(sweep, tmp_path / "sweeps/quickstart"), "a test").conclude()
    with served(database, tmp_path / "files", free_port()) as uri, browser() as page:
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name("quickstart").experiment_id
        runs = {each.data.tags["fedmbo.key"]: each for each in client.search_runs([experiment])}
        page.get(f"{uri}/#/experiments/{experiment}/runs")
        page_shows(page, "document.body.innerText.includes('Training runs')")
        page_shows(page, "[...document.querySelectorAll('a')].some(each => each.innerText.trim() == 'quickstart')")
        page.get(f"{uri}/#/experiments/{experiment}/runs/{runs[''].info.run_id}")
        page_shows(page, "document.body.innerText.includes('Best of 4 trials')")
        text = page.execute_script("return document.body.innerText")
        for key in ("00000", "00001", "00002", "00003"):
            assert runs[key].info.run_name in text
        link = "[...document.querySelectorAll('a')].find(each => each.innerText == 'What data each client has')"
        picture = page_shows(page, f"({link} || {{}}).href")
        link = "[...document.querySelectorAll('a')].find(each => each.innerText == 'upper_loss against rounds')"
        page.get(page_shows(page, f"({link} || {{}}).href"))
        page_shows(page, "document.querySelectorAll('.plot-container .scatterlayer .trace').length >= 4")
        page.get(picture)
        page_shows(page, "[...document.querySelectorAll('img')].some(each => each.naturalWidth > 1000)")


KILLED = """
import os, signal
from sqlalchemy import event
from sqlalchemy.engine import Engine
from fedmbo_ray.tracking.connection import make_client, make_store

left = [5]

@event.listens_for(Engine, "after_cursor_execute")
def executed(connection, cursor, statement, *more):
    left[0] -= "ALTER TABLE" in statement
    if left[0] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)

make_client("sqlite:///mlflow.db").search_experiments()
"""


def test_a_database_killed_while_it_is_made_does_no_harm(forks: Forks, tmp_path: Path) -> None:
    file = tmp_path / "new" / "mlflow.db"
    file.parent.mkdir()
    assert forks.start("-c", KILLED, cwd=file.parent).wait() == -signal.SIGKILL
    assert not file.exists()
    (experiment,) = make_client(f"sqlite:///{file}").search_experiments()
    assert experiment.name == "Default"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_database_is_the_same_as_mlflow_makes_it(empty_database: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "made.db")
    made, expected = contents(tmp_path / "made.db"), contents(empty_database)
    assert made == expected
    assert len(made.rows["alembic_version"]) == 1


EXPORTED = """
import sys
from io import BytesIO
from fedmbo_ray.core.compat import import_export

assert "torch._dynamo" not in sys.modules
import_export()
before = {*sys.modules}
import torch
torch.export.save(torch.export.export(torch.nn.Linear(2, 3), (torch.zeros(1, 2),)), BytesIO())
print(len({*sys.modules} - before), len(before))
"""


def test_what_the_export_of_a_model_imports_can_be_imported_ahead(forks: Forks) -> None:
    code, said, error = forks.run("-c", EXPORTED)
    assert code == 0, error
    assert int(said.split()[0]) < 50  # of seven hundred


class Contents(NamedTuple):
    """The lines that define each table and index, and the first field of each row."""

    definitions: dict[str, list[str]]
    rows: dict[str, list[str]]


def contents(file: Path) -> Contents:
    with closing(sqlite3.connect(file)) as store:
        defined = store.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL").fetchall()
        tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: [str(row[0]) for row in store.execute(f'SELECT * FROM "{name}"')] for name in tables}
    lines = {name: [line.strip(" \t,") for line in sql.splitlines()] for name, sql in defined}
    return Contents({name: sorted(each) for name, each in lines.items()}, rows)  # constraints come in any order
