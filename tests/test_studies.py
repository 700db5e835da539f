"""Studies: all of them at their smallest scale, killed and resumed, then judged, drawn and reported."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import browser
import pytest
from mlflow import MlflowClient

from analysis import variance
from analysis.claims import verdict
from analysis.conclusions import FIGURES, name_of
from analysis.reading import Store, Study, Trial
from fedmbo_ray.experiment import run
from fedmbo_ray.loading import read_yaml
from fedmbo_ray.studies import STUDIES, Plan, StudyFolder
from fedmbo_ray.study import main
from fedmbo_ray.sweeps.config import make_sweep, read_sweep

ROOT = Path(__file__).parent.parent


def start(where: Path, module: str, *words: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", module, *words]
    with (where / "said").open("a") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, cwd=where, env=environment, start_new_session=True)


def finish(where: Path, module: str, *words: str) -> None:
    code = start(where, module, *words).wait(timeout=1100)
    assert code == 0, (where / "said").read_text()[-3000:]


def ended(where: Path, sweep: str) -> int:
    """How many of a sweep's trials have ended."""
    files = where.glob(f"studies/*/{sweep}/trials/*/seed_*/records.jsonl")
    lasts = [file.read_text().splitlines()[-1:] for file in files]
    return sum('"status"' in last[0] for last in lasts if last)


@pytest.mark.timeout(1200)
def test_all_studies_killed_resumed_judged_and_reported(tmp_path: Path) -> None:
    begun = time.monotonic()
    process = start(tmp_path, "fedmbo_ray.study", "all", "--scale", "smoke")
    while ended(tmp_path, "heterogeneity") < 1:
        assert process.poll() is None, (tmp_path / "said").read_text()[-3000:]
        assert time.monotonic() < begun + 600
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finish(tmp_path, "fedmbo_ray.study", "all", "--scale", "smoke", "--resume")
    finish(tmp_path, "analysis.report", "--scale", "smoke")
    print(f"all studies at smoke scale, one kill and the report: {time.monotonic() - begun:.0f} s")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    nothing_is_there_twice(uri)
    bits_are_those_of_an_undisturbed_run(tmp_path)
    a_column_that_keeps_its_client_is_found_out(Store(uri))
    the_report_is_whole(tmp_path / "report")


def test_ctrl_c_leaves_a_study_to_continue(tmp_path: Path) -> None:
    process = start(tmp_path, "fedmbo_ray.study", "theory", "--scale", "smoke", "--only", "inner", "rounds=100000")
    files = "studies/*/inner/trials/*/seed_*/records.jsonl"
    while not any(len(file.read_text().splitlines()) > 2 for file in tmp_path.glob(files)):
        assert process.poll() is None, (tmp_path / "said").read_text()[-3000:]
        time.sleep(0.1)
    time.sleep(5)  # MLflow has begun to follow
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert (tmp_path / "said").read_text().splitlines()[-1] == (
        "interrupted; continue with the same command and --resume"
    )
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("theory").experiment_id])
    above = [each for each in runs if "mlflow.parentRunId" not in each.data.tags]
    assert [each.info.status for each in above] == ["KILLED"]


def nothing_is_there_twice(uri: str) -> None:
    client = MlflowClient(uri)
    for name in STUDIES:
        runs = client.search_runs([client.get_experiment_by_name(name).experiment_id], max_results=5000)
        keys = Counter((each.data.tags.get("fedmbo.sweep"), each.data.tags.get("fedmbo.key", "study")) for each in runs)
        assert set(keys.values()) == {1}, name
        study = next(each for each in runs if each.data.tags.get("fedmbo.kind") == "study")
        sweeps = [each for each in runs if each.data.tags.get("mlflow.parentRunId") == study.info.run_id]
        assert sweeps
        assert study.data.tags["verdict"] in ("passed", "open", "compared"), name
        files = {file.path for file in client.list_artifacts(study.info.run_id)}
        assert {f"{name_of(figure)}.png" for figure in FIGURES[name]} | {"verdict.json"} <= files
        for each in runs:
            assert each.info.status == "FINISHED", (name, each.info.run_name)
            steps = [point.step for point in client.get_metric_history(each.info.run_id, "round")]
            assert len(set(steps)) == len(steps)


def bits_are_those_of_an_undisturbed_run(where: Path) -> None:
    (folder,) = where.glob("studies/heterogeneity-*/heterogeneity")
    sweep = make_sweep(read_yaml(folder / "sweep.yaml"))
    for number, point in enumerate(sweep.points() or []):
        if number % 2 == 0:
            found = (folder / "trials" / f"{number:05d}" / "seed_001" / "records.jsonl").read_text().splitlines()
            last = list(run(sweep.config(point, 1)))[-1]
            assert json.loads(found[-1])["x_sha256"] == last["x_sha256"]


def a_column_that_keeps_its_client_is_found_out(store: Store) -> None:
    """Fed with draws whose columns keep their client in place of PHE's, the verdict fails."""
    study = store.study("linear_speedup", store.identities("linear_speedup")[-1])
    assert verdict(variance.claims(study)) != "failed"
    (frozen,) = study.sweeps["frozen"]

    def swapped(trial: Trial) -> Trial:
        return replace(trial, seeds=frozen.seeds) if trial.param(variance.NAME) == "phe" else trial

    wrong = Study(study.run, {**study.sweeps, "variance": [swapped(trial) for trial in study.sweeps["variance"]]})
    assert verdict(variance.claims(wrong)) == "failed"


def the_report_is_whole(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert "http://" not in page
    assert "https://" not in page
    assert all(f'id="{name}"' in page for name in [*STUDIES, "errata"])
    assert "E27" in page
    for file in ("README.md", "figures/figure_2.png", "figures/clients/clients.svg", "figures/theory/verdict.json"):
        assert (folder / file).stat().st_size > 1000
    if browser.find() is None:
        return
    with browser.Browser() as chromium:
        chromium.call("Network.enable")
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        chromium.call("Network.emulateNetworkConditions", **offline)
        chromium.open((folder / "report.html").as_uri())
        chromium.wait_for("document.images.length > 0 && [...document.images].every(image => image.complete)")
        assert chromium.evaluate("[...document.images].filter(image => image.naturalWidth == 0).length") == 0
        assert chromium.evaluate("document.images.length") == sum(map(len, FIGURES.values()))
        assert not chromium.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        assert chromium.errors == []


@pytest.mark.parametrize("scale", ["smoke", "standard", "paper"])
def test_every_sweep_of_a_study_has_every_scale(scale: str, tmp_path: Path) -> None:
    for name, study in STUDIES.items():
        folder = StudyFolder(tmp_path / f"{name}-{scale}")
        if name not in ("estimators", "methods"):  # theirs depend on each other's results
            assert all(sweep.points() for _, sweep in study.sweeps(Plan(folder, scale, [])))
    for file in [*ROOT.glob("tune_configs/studies/*/*.yaml"), *ROOT.glob("tune_configs/methods/*.yaml")]:
        assert read_sweep(file, [], scale).points()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["lineer_speedup"], "unknown study 'lineer_speedup'; did you mean 'linear_speedup'?"),
        (
            ["theory", "--only", "innner"],
            "--only must name sweeps of the study theory, but got 'innner'; did you mean 'inner'?",
        ),
        (["theory", "clients.cohort_sice=3"], "clients: unknown key 'cohort_sice'; did you mean 'cohort_size'?"),
        (["theory", "clients", "--out", "x"], "--out is for one study, but got theory, clients"),
    ],
)
def test_a_bad_word_is_one_line(words: list[str], line: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.strip().splitlines()[-1].startswith(f"error: {line}")
    assert "Traceback" not in err
