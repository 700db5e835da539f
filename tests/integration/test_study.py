"""The command that runs a study: to its end with figures, a verdict and a report, or up to Ctrl-C."""

import json
import signal
import time
from pathlib import Path

import pytest
from forked import Forks
from mlflow import MlflowClient


def test_a_study_ends_with_a_verdict_and_is_reported(forks: Forks, database: str, tmp_path: Path) -> None:
    code, _, err = forks.run("-m", "fedmbo_ray.study", "theory", "--scale", "smoke", cwd=tmp_path)
    assert code == 0, err
    client = MlflowClient(database)
    runs = client.search_runs([client.get_experiment_by_name("theory").experiment_id])
    assert {each.info.status for each in runs} == {"FINISHED"}
    (study,) = (each for each in runs if each.data.tags.get("fedmbo.kind") == "study")
    assert study.data.tags["verdict"] in ("passed", "open")
    assert "verdict.json" in {file.path for file in client.list_artifacts(study.info.run_id)}
    code, out, err = forks.run("-m", "fedmbo_ray.report", "--scale", "smoke", cwd=tmp_path)
    assert code == 0, err
    assert f"theory {study.data.tags['verdict']}" in out
    verdict = json.loads((tmp_path / "report" / "figures" / "theory" / "verdict.json").read_text())
    assert verdict["status"] == study.data.tags["verdict"]
    assert 'id="theory"' in (tmp_path / "report" / "report.html").read_text()


@pytest.mark.slow
def test_ctrl_c_leaves_a_study_to_continue(forks: Forks, database: str, tmp_path: Path) -> None:
    words = ["theory", "--scale", "smoke", "--only", "inner", "rounds=100000"]
    process, client = forks.start("-m", "fedmbo_ray.study", *words, cwd=tmp_path), MlflowClient(database)

    def shown() -> list[str]:
        """The states of the runs that stand above all others."""
        experiment = client.get_experiment_by_name("theory")
        runs = client.search_runs([experiment.experiment_id]) if experiment is not None else []
        return [each.info.status for each in runs if "mlflow.parentRunId" not in each.data.tags]

    files = "studies/*/inner/trials/*/seed_*/records.jsonl"
    while shown() != ["RUNNING"] or not any(file.read_text().count("\n") > 1 for file in tmp_path.glob(files)):
        assert process.poll() is None, process.said()
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    code, _, err = process.finish()
    assert code == 130
    assert err.splitlines()[-1] == "interrupted; continue with the same command and --resume"
    assert shown() == ["KILLED"]
