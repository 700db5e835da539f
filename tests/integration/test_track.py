"""fedmbo run --track: a single run in a real MLflow, told once however often it is told."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run as MlflowRun

from fedmbo_ray import ConfigError, run_experiment
from fedmbo_ray.cli.data import main as show_data
from fedmbo_ray.cli.run import main
from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.data.datasets import data_root, load_dataset
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.loop import run
from fedmbo_ray.tracking import background, client_picture
from fedmbo_ray.tracking.single import RunTracker, tracked

WORDS = ["rounds=12", "record.every=4", "record.checkpoint_every=4"]


@pytest.fixture
def here(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    threads = threading.active_count()
    yield tmp_path
    assert threading.active_count() <= threads + 1  # no thread that follows a run outlives it


def shown(here: Path, experiment: str) -> list[MlflowRun]:
    client = MlflowClient(f"sqlite:///{here}/mlflow.db")
    return client.search_runs([client.get_experiment_by_name(experiment).experiment_id])


def steps(here: Path, found: MlflowRun, metric: str) -> list[tuple[int, float]]:
    client = MlflowClient(f"sqlite:///{here}/mlflow.db")
    return sorted((each.step, each.value) for each in client.get_metric_history(found.info.run_id, metric))


def test_a_run_is_recorded_with_all_that_a_trial_has(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--out", "runs/digits", "--track"]) == 0
    assert "MLflow: fedmbo ui, then http://127.0.0.1:5000/" in capsys.readouterr().err
    (found,) = shown(here, "digits")
    records = RunFolder(Path("runs/digits")).records()
    for metric in ("round", "upper_loss", "communications", "test_accuracy"):
        assert steps(here, found, metric) == [(each["round"], each[metric]) for each in records]
    assert (found.info.status, found.data.tags["status"]) == ("FINISHED", "finished")
    assert found.data.tags["x_sha256"] == records[-1]["x_sha256"]
    assert found.data.params["rounds"] == "12"
    assert found.data.params["algorithm.lower.name"] == "minibatch_sgd"
    assert [each.dataset.name for each in found.inputs.dataset_inputs] == ["digits"]
    (output,) = found.outputs.model_outputs
    mlflow_uri = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{here}/mlflow.db")
    try:
        model = mlflow.pyfunc.load_model(f"models:/{output.model_id}")
    finally:
        mlflow.set_tracking_uri(mlflow_uri)
    digits = load_dataset("digits", data_root())
    right = model.predict(digits.test_inputs.astype(np.float32)).argmax(1) == digits.test_targets
    assert right.mean() == pytest.approx(records[-1]["test_accuracy"])


def artifacts(found: MlflowRun) -> dict[str, bytes]:
    """The files at the top of a run's artifacts."""
    folder = Path(found.info.artifact_uri.removeprefix("file://"))
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_run_shows_its_clients(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--out", "runs/digits", "--track"]) == 0
    (found,) = shown(here, "digits")
    files = artifacts(found)
    assert files["clients.png"].startswith(b"\x89PNG")
    assert found.data.tags["clients"] == "digits, by_digits (digits 2), 50 clients"
    assert "/artifacts/clients.png" in found.data.tags["mlflow.note.content"]
    capsys.readouterr()
    assert show_data(["digits", "clients.num_clients=50"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "gradients" not in line] == files["clients.txt"].decode().splitlines()
    for metric, words in (("label_distance", "labels: mean total"), ("size_variation", "sizes: standard deviation")):
        ((step, number),) = steps(here, found, f"clients/{metric}")
        assert step == 0
        assert next(line for line in lines if words in line).rstrip().endswith(f" {number:.3f}")


def test_a_problem_without_a_data_set_has_no_clients_to_show(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quadratic", "rounds=2", "--out", "runs/quadratic", "--track"]) == 0
    (found,) = shown(here, "quadratic")
    assert artifacts(found).keys() == {"config.yaml"}
    assert not any("clients/" in metric for metric in found.data.metrics)
    assert "picture" not in capsys.readouterr().err + found.data.tags["mlflow.note.content"]


def test_a_run_does_not_need_the_picture_of_its_clients(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*args: object) -> None:
        raise MemoryError("too many clients")

    monkeypatch.setattr(client_picture, "made_picture", failing)
    assert main([*WORDS, "--out", "runs/a", "--track"]) == 0
    said = capsys.readouterr().err
    assert said.count("MLflow gets no picture of the clients (MemoryError: too many clients)\n") == 1
    (found,) = shown(here, "a")
    assert (found.info.status, found.data.tags["status"]) == ("FINISHED", "finished")
    assert [step for step, _ in steps(here, found, "round")] == [0, 4, 8, 12]
    assert "clients.png" not in artifacts(found).keys() | {found.data.tags["mlflow.note.content"]}


def test_a_run_that_is_resumed_goes_on_in_mlflow_without_duplicates(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawings: list[tuple[object, ...]] = []
    draw = client_picture.made_picture
    monkeypatch.setattr(client_picture, "made_picture", lambda *args: [drawings.append(args), draw(*args)][1])
    config, folder = read_config(None, WORDS), RunFolder(here / "runs" / "a")

    def interrupted() -> None:
        tracker = RunTracker(config, folder, "a test")
        for record in run(config, folder):
            tracker.update()
            if record["round"] == 8:
                tracker.interrupt()
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    (found,) = shown(here, "a")
    assert found.info.status == "KILLED"
    assert [step for step, _ in steps(here, found, "round")] == [0, 4, 8]
    for _ in range(2):  # the second time there is nothing left to run
        assert main(["--out", "runs/a", "--resume", "--track"]) == 0
        (found,) = shown(here, "a")
        assert found.info.status == "FINISHED"
        assert [step for step, _ in steps(here, found, "round")] == [0, 4, 8, 12]
        assert len(steps(here, found, "clients/label_distance")) == len(drawings) == 1


def test_a_run_from_python_is_recorded_and_may_become_longer(here: Path) -> None:
    run_experiment(None, *WORDS, out="runs/a", track=True)
    longer = run_experiment(out="runs/a", resume=True, track=True, rounds=16)
    (found,) = shown(here, "a")
    assert [step for step, _ in steps(here, found, "round")] == list(longer.records["round"]) == [0, 4, 8, 12, 16]
    assert found.data.tags["x_sha256"] == longer.last["x_sha256"]
    assert sorted(each.step for each in found.outputs.model_outputs) == [12, 16]
    with pytest.raises(ConfigError, match="track needs out"):
        run_experiment(None, *WORDS, track=True)


def test_an_interrupted_run_is_left_to_continue(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "SECONDS_BETWEEN_LOOKS", 0.05)
    config, folder = read_config(None, WORDS), RunFolder(here / "runs" / "2026-01-31_12-00-00")
    client = MlflowClient(f"sqlite:///{here}/mlflow.db")
    experiment = client.create_experiment("runs")  # the folder's name is the time alone

    def follow() -> None:
        with tracked(config, folder, "a test"):
            deadline = time.monotonic() + 60
            while not client.search_runs([experiment]):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        follow()
    (found,) = shown(here, "runs")
    assert found.info.status == "KILLED"
    list(run(config, folder))
    with tracked(config, folder, "a test"):
        pass
    (found,) = shown(here, "runs")
    assert found.info.status == "FINISHED"
    assert [step for step, _ in steps(here, found, "round")] == [0, 4, 8, 12]


def test_a_run_does_not_need_the_server_that_records_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", nobody)
    monkeypatch.setattr(background, "PATIENCE", 0.5)
    assert main([*WORDS, "--out", "runs/a", "--track"]) == 0
    said = capsys.readouterr().err
    assert f"MLflow at {nobody} can't be reached, records wait in the folder" in said
    assert f"MLflow at {nobody} can't be reached: continue the run in runs/a (resume, track)" in said
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert main(["--out", "runs/a", "--resume", "--track"]) == 0
    (found,) = shown(here, "a")
    assert [step for step, _ in steps(here, found, "round")] == [0, 4, 8, 12]
