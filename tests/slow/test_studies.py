"""All studies at their smallest scale, killed and resumed, then judged, drawn and reported."""

import json
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from browser import browser, complaints, go_offline, needs_browser, wait_for
from forked import Forks
from mlflow import MlflowClient

from fedmbo_ray.analysis.claims import verdict
from fedmbo_ray.analysis.conclusions import FIGURES, name_of
from fedmbo_ray.analysis.figures import variance
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy, RecordedTrial, Store
from fedmbo_ray.core.io import read_yaml
from fedmbo_ray.runs.loop import run
from fedmbo_ray.studies.plans import STUDIES
from fedmbo_ray.sweeps.schema import make_sweep

pytestmark = pytest.mark.timeout(1500)
ALL = ("-m", "fedmbo_ray.study", "all", "--scale", "smoke")


def ended(where: Path, sweep: str) -> int:
    """How many of a sweep's trials have ended."""
    files = where.glob(f"studies/*/{sweep}/trials/*/seed_*/records.jsonl")
    lasts = [file.read_text().splitlines()[-1:] for file in files]
    return sum('"status"' in last[0] for last in lasts if last)


@pytest.fixture(scope="module")
def studied(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all studies were run, with one kill, and reported."""
    where, begun = tmp_path_factory.mktemp("studies"), time.monotonic()
    process = forks.start(*ALL, cwd=where)
    while ended(where, "heterogeneity") < 1:
        assert process.poll() is None, process.said()
        assert time.monotonic() < begun + 600, "the study of heterogeneity has not begun"
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    for words in ((*ALL, "--resume"), ("-m", "fedmbo_ray.report", "--scale", "smoke")):
        code, _, err = forks.run(*words, cwd=where, timeout=1400)
        assert code == 0, err
    print(f"all studies at smoke scale, one kill and the report: {time.monotonic() - begun:.0f} s")
    return where


@pytest.fixture
def uri(studied: Path) -> str:
    return f"sqlite:///{studied / 'mlflow.db'}"


@pytest.mark.parametrize("name", STUDIES)
def test_nothing_is_there_twice(name: str, uri: str) -> None:
    client = MlflowClient(uri)
    runs = client.search_runs([client.get_experiment_by_name(name).experiment_id], max_results=5000)
    keys = Counter((each.data.tags.get("fedmbo.sweep"), each.data.tags.get("fedmbo.key", "study")) for each in runs)
    assert set(keys.values()) == {1}
    study = next(each for each in runs if each.data.tags.get("fedmbo.kind") == "study")
    assert any(each.data.tags.get("mlflow.parentRunId") == study.info.run_id for each in runs)
    assert study.data.tags["verdict"] in ("passed", "open", "compared")
    files = {file.path for file in client.list_artifacts(study.info.run_id)}
    assert {f"{name_of(figure)}.png" for figure in FIGURES[name]} | {"verdict.json"} <= files
    for each in runs:
        assert each.info.status == "FINISHED", each.info.run_name
        steps = [point.step for point in client.get_metric_history(each.info.run_id, "round")]
        assert len(set(steps)) == len(steps)


def test_bits_are_those_of_an_undisturbed_run(studied: Path) -> None:
    (folder,) = studied.glob("studies/heterogeneity-*/heterogeneity")
    sweep = make_sweep(read_yaml(folder / "sweep.yaml"))
    for number, point in list(enumerate(sweep.points() or []))[::2]:
        found = (folder / "trials" / f"{number:05d}" / "seed_001" / "records.jsonl").read_text().splitlines()
        last = list(run(sweep.config(point, 1)))[-1]
        assert json.loads(found[-1])["x_sha256"] == last["x_sha256"]


def test_a_column_that_keeps_its_client_is_found_out(uri: str) -> None:
    """Fed with draws whose columns keep their client in place of PHE's, the verdict fails."""
    store = Store(uri)
    study = store.study("linear_speedup", store.identities("linear_speedup")[-1])
    assert verdict(variance.claims(study)) != "failed"
    (frozen,) = study.sweeps["frozen"]

    def swapped(trial: RecordedTrial) -> RecordedTrial:
        return replace(trial, seeds=frozen.seeds) if trial.param(variance.NAME) == "phe" else trial

    wrong = RecordedStudy(
        study.run, {**study.sweeps, "variance": [swapped(trial) for trial in study.sweeps["variance"]]}
    )
    assert verdict(variance.claims(wrong)) == "failed"


def test_the_report_is_whole(studied: Path) -> None:
    folder = studied / "report"
    page = (folder / "report.html").read_text()
    assert "http://" not in page
    assert "https://" not in page
    assert all(f'id="{name}"' in page for name in [*STUDIES, "errata"])
    assert "E27" in page
    for file in ("README.md", "figures/figure_2.png", "figures/clients/clients.svg", "figures/theory/verdict.json"):
        assert (folder / file).stat().st_size > 1000


@needs_browser
def test_the_report_shows_every_figure_without_a_network(studied: Path) -> None:
    with browser() as page:
        go_offline(page)
        page.get((studied / "report" / "report.html").as_uri())
        wait_for(page, "document.images.length > 0 && [...document.images].every(image => image.complete)")
        broken = "[...document.images].filter(image => image.naturalWidth == 0).length"
        assert page.execute_script(f"return {broken}") == 0
        assert page.execute_script("return document.images.length") == sum(map(len, FIGURES.values()))
        assert not page.execute_script("return document.documentElement.scrollWidth > window.innerWidth")
        assert complaints(page) == []
