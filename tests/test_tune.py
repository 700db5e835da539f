"""Sweeps: in real processes with real signals, on a real cluster, and recorded in a real MLflow."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import browser
import mlflow
import numpy as np
import psutil
import pytest
from mlflow import MlflowClient
from rich.console import Console
from tasks import reference

from fedmbo_ray import tune
from fedmbo_ray.datasets import data_root, load
from fedmbo_ray.experiment import run
from fedmbo_ray.loading import changed, read_config, read_yaml
from fedmbo_ray.sweeps.config import Sweep, SweepFields, make_sweep
from fedmbo_ray.sweeps.folder import SweepFolder, TrialFolder
from fedmbo_ray.sweeps.progress import SweepProgress
from fedmbo_ray.sweeps.ranking import ranked
from fedmbo_ray.tracking.following import Following
from fedmbo_ray.tracking.tracker import Tracker

CONFIGS = Path(__file__).parent.parent / "tune_configs"
SMALL = [
    str(CONFIGS / "quickstart.yaml"),
    "rounds=60",
    "algorithm.step_size={grid: [0.02, 0.05]}",
    "algorithm.lower.step_size={grid: [0.5, 1.0]}",
    "tune.scheduler=fifo",
    "record.checkpoint_every=7",
]


def start(where: Path, *words: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "fedmbo_ray.tune", *words]
    environment = {**os.environ, "PYTHONPATH": str(CONFIGS.parent)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, cwd=where, env=environment, start_new_session=True
    )


def finish(process: subprocess.Popen, code: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=280)
    assert process.returncode == code, err
    return out, err


def records(trial: Path) -> list[dict]:
    """Without the time they took."""
    lines = [json.loads(line) for line in (trial / "seed_000" / "records.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "wall_seconds"} for line in lines]


def all_records(folder: Path) -> dict[str, list[dict]]:
    return {trial.name: records(trial) for trial in sorted((folder / "trials").iterdir())}


def shown(uri: str, experiment: str) -> dict[str, dict]:
    """Every run of an experiment in MLflow, by its key: its metrics at every step, its parent, its status."""
    client = MlflowClient(uri)
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id], max_results=1000)
    keys = {each.info.run_id: each.data.tags["fedmbo.key"] for each in found}
    assert len(set(keys.values())) == len(keys)
    return {
        keys[each.info.run_id]: {
            "metrics": {
                name: sorted((point.step, point.value) for point in client.get_metric_history(each.info.run_id, name))
                for name in each.data.metrics
                if name != "wall_seconds" and not name.startswith("system/")
            },
            "parent": keys.get(each.data.tags.get("mlflow.parentRunId", "")),
            "status": (each.info.status, each.data.tags.get("status")),
        }
        for each in found
    }


def wait_for(condition, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def lines_of(trial: Path) -> int:
    file = trial / "seed_000" / "records.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_what_is_killed_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    words = [*SMALL, "rounds=90", "--out", "sweeps/a"]
    process, trials = start(tmp_path, *words), tmp_path / "sweeps/a/trials"
    wait_for(lambda: lines_of(trials / "00000") >= 3)
    family = psutil.Process(process.pid).children(recursive=True)
    trial = next(each for each in family if "ImplicitFunc" in " ".join(each.cmdline()))  # as Tune calls it
    trial.kill()
    wait_for(lambda: lines_of(trials / "00001") >= 6 and lines_of(trials / "00000") >= 6)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    out, err = finish(start(tmp_path, *words, "--resume", "--json"))
    assert "best config: python -m fedmbo_ray.run sweeps/a/best.yaml" in err

    sweep, folder = make_sweep(read_yaml(tmp_path / "sweeps/a/sweep.yaml")), SweepFolder(tmp_path / "sweeps/a")
    undisturbed = reference(sweep, tmp_path / "sweeps/undisturbed")
    whole = all_records(undisturbed.path)
    assert list(whole) == ["00000", "00001", "00002", "00003"]
    assert all_records(folder.path) == whole
    best = ranked(undisturbed, sweep.tune)[0]
    assert json.loads(out) == {"trial": best.name, "point": best.point, "score": best.score, "failed": 0, "trials": 4}
    assert folder.best_file.read_text() == undisturbed.best_file.read_text()
    assert list(run(read_config(folder.best_file, [])))[-1]["x_sha256"] == whole[best.name][-1]["x_sha256"]

    found = shown(f"sqlite:///{tmp_path}/mlflow.db", "a")
    assert set(found) == {"", *whole}
    for name, lines in whole.items():
        assert found[name]["parent"] == ""
        assert found[name]["status"] == ("FINISHED", "finished")
        for key in ("round", "communications", "data_epochs", "upper_loss", "test_accuracy"):
            assert found[name]["metrics"][key] == [(line["round"], line[key]) for line in lines]


def test_ctrl_c_leaves_a_sweep_to_continue(tmp_path: Path) -> None:
    process = start(tmp_path, *SMALL, "rounds=1000", "--out", "sweeps/a")
    wait_for(lambda: lines_of(tmp_path / "sweeps/a/trials/00000") >= 2)
    process.send_signal(signal.SIGINT)
    _, err = finish(process, code=130)
    assert err.strip().splitlines()[-1] == "interrupted; continue with --out sweeps/a --resume"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(where: Path, port: int) -> subprocess.Popen:
    """An MLflow server that answers."""
    words = [
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--backend-store-uri",
        f"sqlite:///{where}/server.db",
        "--workers",
        "1",
    ]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    command = [sys.executable, "-m", "mlflow", *words, "--artifacts-destination", str(where / "files")]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=where, env=environment, stdout=quiet, stderr=quiet, start_new_session=True)

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_for(answers)
    return process


def stop(server: subprocess.Popen) -> None:
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def test_nothing_is_lost_while_the_tracking_server_is_away(tmp_path: Path) -> None:
    port = free_port()
    uri, server = f"http://127.0.0.1:{port}", serve(tmp_path, port)
    try:
        words = [*SMALL, "algorithm.lower.step_size=0.5", "rounds=90", f"tune.tracking_uri={uri}", "--out", "sweeps/a"]
        process = start(tmp_path, *words)
        wait_for(lambda: lines_of(tmp_path / "sweeps/a/trials/00000") >= 3)
        stop(server)
        wait_for(lambda: lines_of(tmp_path / "sweeps/a/trials/00001") >= 9)
        time.sleep(5)
        server = serve(tmp_path, port)
        _, err = finish(process)
        assert "is away, records wait" in err
        assert "is back" in err
        found = shown(uri, "a")
        for name, lines in all_records(tmp_path / "sweeps/a").items():
            assert found[name]["status"] == ("FINISHED", "finished")
            assert found[name]["metrics"]["upper_loss"] == [(line["round"], line["upper_loss"]) for line in lines]
    finally:
        stop(server)


def sweep_of(*words: str) -> Sweep:
    file = CONFIGS / "quadratic.yaml"
    return make_sweep(changed(read_yaml(file), ["rounds=40", "clients.num_clients=20", *words], SweepFields))


ALPHAS = "algorithm.step_size={grid: [0.01, 0.02, 0.04, 0.08]}"


def by_hand(path: Path, *words: str) -> tuple[Sweep, SweepFolder]:
    sweep = sweep_of(*words)
    return sweep, reference(sweep, path)


def test_mlflow_is_told_once_however_often_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep, folder = by_hand(tmp_path / "sweeps/hand", ALPHAS, "tune.seeds=2")
    tracker = Tracker(sweep, folder, "a test")
    tracker.connect()
    sent, log_batch = [], tracker.client.log_batch

    def breaking(*args, **kwargs):
        sent.append(args)
        if len(sent) % 5 == 0:
            raise ConnectionError("gone")
        return log_batch(*args, **kwargs)

    monkeypatch.setattr(tracker.client, "log_batch", breaking)
    following = Following(tracker)
    wait_for(lambda: following.attempt(tracker.update))
    once = shown(tracker.uri, "hand")
    other = Tracker(sweep, folder, "a test")  # somebody else, who knows only what the server knows
    other.update()
    other.conclude()
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


def test_the_best_model_can_be_loaded_and_knows_what_was_learned(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*SMALL[1:], "algorithm.step_size=0.05", "rounds=20"]
    sweep = make_sweep(changed(read_yaml(Path(SMALL[0])), words, SweepFields))
    folder = reference(sweep, tmp_path / "sweeps/a")
    tracker = Tracker(sweep, folder, "a test")
    tracker.conclude()
    (logged,) = tracker.client.search_logged_models([tracker.pages.experiment_id])
    assert logged.source_run_id == tracker.runs[ranked(folder, sweep.tune)[0].name].run_id
    model = mlflow.pyfunc.load_model(logged.model_uri)
    assert model.metadata.signature is not None
    digits = load("digits", data_root())
    right = model.predict(digits.test_inputs.astype(np.float32)).argmax(1) == digits.test_targets
    last = folder.trial(ranked(folder, sweep.tune)[0].name).records()[-1]
    assert right.mean() == pytest.approx(last["test_accuracy"])


def run_on(cluster: None, path: Path, *words: str) -> tuple[Sweep, SweepFolder]:
    from fedmbo_ray.sweeps.tuner import run_sweep

    sweep, folder = sweep_of(*words), SweepFolder(path)
    with folder.claimed(sweep.plain()):
        run_sweep(sweep, folder, Console(file=io.StringIO()))
    return sweep, folder


def digests(folder: SweepFolder) -> dict[str, str]:
    return {trial.name: trial.runs[0].records()[-1].get("x_sha256", "") for trial in folder.trials()}


@pytest.mark.parametrize(
    ("asked", "actor"),
    [
        (["clients.actors=2", "clients.cpus_per_actor=0.5"], {"CPU": 0.5}),
        (
            ["clients.actors=4", "clients.cpus_per_actor=0.25", "clients.gpus_per_actor=0.25"],
            {"CPU": 0.25, "GPU": 0.25},
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
        [
            "algorithm.step_size={loguniform: [0.01, 0.1]}",
            "tune.search=optuna",
            "tune.samples=4",
            "tune.scheduler={name: asha, grace: 10, reduction: 2}",
            ONE,
        ],
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


def test_a_point_may_be_proposed_more_than_once(cluster, tmp_path: Path) -> None:
    words = ("algorithm.step_size={choice: [0.01, 0.02]}", "tune.search=optuna", "tune.samples=4")
    sweep, folder = run_on(cluster, tmp_path / "a", *words)
    trials, before = ranked(folder, sweep.tune), digests(folder)
    assert [each.status for each in trials] == ["finished"] * 4
    assert len({str(each.point) for each in trials}) <= 2
    _, again = run_on(cluster, tmp_path / "a", *words)
    assert digests(again) == before


def test_the_time_left_goes_by_the_rounds_that_each_trial_has(tmp_path: Path, monkeypatch) -> None:
    sweep, folder = sweep_of("rounds={zip: [100, 10]}", "tune.search=grid"), SweepFolder(tmp_path / "a")
    with folder.claimed(sweep.plain()):
        folder.trial("00001").begin({"rounds": 10})
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now)
        progress = SweepProgress(sweep, folder, 2, Console(file=io.StringIO()))
        now += 6.0
        progress.heard("00001", 5, 1.0)
        assert progress.line().endswith("ETA 18 s")  # a quarter of it took six


def test_a_trial_has_diverged_when_all_its_seeds_have_ended(tmp_path: Path) -> None:
    trial = TrialFolder(tmp_path / "00000", seeds=3)
    trial.begin({})
    for seed, status in enumerate(("finished", "diverged", "finished")):
        assert trial.status == "running"
        folder = trial.run(seed)
        folder.path.mkdir()
        folder.append({"round": 0})
        assert trial.status == "running"
        folder.append({"round": 1, "status": status})
    assert trial.status == "diverged"


def test_the_best_trial_is_marked_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep, folder = by_hand(tmp_path / "sweeps/hand", "algorithm.step_size={grid: [0.01, 0.02]}")
    tracker = Tracker(sweep, folder, "a test")
    tracker.update()
    for best in "00000", "00001":
        tracker._mark_best(folder.trial(best))
        marked = tracker.experiment.runs("tags.best = 'yes'")
        assert [run.data.tags["trial"] for run in marked] == [best]


def test_trials_that_diverge_or_raise_do_not_stop_the_others(cluster, tmp_path: Path) -> None:
    words = ("algorithm.step_size={grid: [0.02, 1000]}", "clients.block_size={grid: [4, 5]}", "tune.retries=0")
    sweep, folder = sweep_of(*words), SweepFolder(tmp_path / "a")
    with folder.claimed(sweep.plain()):
        folder.trial("00001").begin((sweep.points() or [])[1])
        folder.trial("00001").run(0).path.write_text("a file where a folder should be")
        from fedmbo_ray.sweeps.tuner import run_sweep

        run_sweep(sweep, folder, Console(file=io.StringIO()))
    statuses = {each.name: each.status for each in ranked(folder, sweep.tune)}
    assert statuses == {"00000": "finished", "00001": "failed", "00002": "finished", "00003": "diverged"}
    assert "NotADirectoryError" in folder.trial("00001").reason or "FileExistsError" in folder.trial("00001").reason


@pytest.mark.parametrize("file", sorted(CONFIGS.rglob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_sweep_can_be_shown(file: Path, capsys: pytest.CaptureFixture[str], mnist: None) -> None:
    assert tune.main([str(file), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "a trial asks for" in said
    assert ("can never be placed" in said) == (file.stem == "gpu")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch.yaml"], "can't read nosuch.yaml"),
        (["a.yaml", "b.yaml"], "one config file at most"),
        ([SMALL[0], "tune.metric=accuracy"], "did you mean 'test_accuracy'"),
        ([SMALL[0], "clients.backend=ray", "clients.gpus_per_actor=0.25"], "must fit the cluster, but it has"),
        (
            [SMALL[0], "tune.resources={fast: 0.5}"],
            "asks for 1 CPU and 0.5 fast, which must fit the cluster, but it has",
        ),
        ([SMALL[0], "tune.resources={CPU: 1}"], "tune.resources: CPU and GPU must be asked for by cpus_per_trial"),
        ([SMALL[0], "--resume"], "--resume found no sweep of 'quickstart'"),
        ([SMALL[0], "--resume", "--out", "nowhere"], "has no sweep.yaml"),
    ],
)
def test_a_bad_command_is_answered_in_one_line(words, said, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert tune.main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(browser.find() is None, reason="Chromium is not installed")
def test_a_person_finds_the_sweep_in_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    port, uri = free_port(), f"sqlite:///{tmp_path}/server.db"
    sweep = make_sweep(changed(read_yaml(Path(SMALL[0])), [*SMALL[1:], f"tune.tracking_uri={uri}"], SweepFields))
    Tracker(sweep, reference(sweep, tmp_path / "sweeps/quickstart"), "a test").conclude()
    server = serve(tmp_path, port)
    try:
        client = MlflowClient(f"http://127.0.0.1:{port}")
        experiment = client.get_experiment_by_name("quickstart").experiment_id
        runs = {each.data.tags["fedmbo.key"]: each for each in client.search_runs([experiment])}
        with browser.Browser() as page:
            page.open(f"http://127.0.0.1:{port}/#/experiments/{experiment}/runs")
            page.wait_for("document.body.innerText.includes('Training runs')")
            page.wait_for("[...document.querySelectorAll('a')].some(each => each.innerText.trim() == 'quickstart')")
            page.open(f"http://127.0.0.1:{port}/#/experiments/{experiment}/runs/{runs[''].info.run_id}")
            page.wait_for("document.body.innerText.includes('Best of 4 trials')")
            for key in ("00000", "00001", "00002", "00003"):
                assert runs[key].info.run_name in page.text()
            link = "[...document.querySelectorAll('a')].find(each => each.innerText == 'upper_loss against rounds')"
            page.open(page.wait_for(f"({link} || {{}}).href"))
            page.wait_for("document.querySelectorAll('.plot-container .scatterlayer .trace').length >= 4")
    finally:
        stop(server)
