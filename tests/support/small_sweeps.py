"""Small sweeps: their words, their records, and what MLflow shows of them."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkout import ROOT
from mlflow import MlflowClient
from tasks import reference

from fedmbo_ray.config.overrides import changed
from fedmbo_ray.core.io import read_yaml
from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.schema import SweepFields, SweepPlan, make_sweep

CONFIGS = ROOT / "tune_configs"
SMALL = [
    str(CONFIGS / "quickstart.yaml"),
    "rounds=60",
    "algorithm.step_size={grid: [0.02, 0.05]}",
    "algorithm.lower.step_size={grid: [0.5, 1.0]}",
    "tune.scheduler=fifo",
    "record.checkpoint_every=7",
]


def sweep_of(*words: str, file: Path = CONFIGS / "quadratic.yaml") -> SweepPlan:
    few = ["rounds=40", "clients.num_clients=20"] if file.stem == "quadratic" else []
    return make_sweep(changed(read_yaml(file), [*few, *words], SweepFields))


def by_hand(path: Path, *words: str) -> tuple[SweepPlan, SweepFolder]:
    sweep = sweep_of(*words)
    return sweep, reference(sweep, path)


def records(trial: Path) -> list[dict[str, Any]]:
    """Without the time they took."""
    lines = [json.loads(line) for line in (trial / "seed_000" / "records.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.endswith("_seconds")} for line in lines]


def all_records(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {trial.name: records(trial) for trial in sorted((folder / "trials").iterdir())}


def lines_of(trial: Path) -> int:
    file = trial / "seed_000" / "records.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def digests(folder: SweepFolder) -> dict[str, str]:
    return {trial.name: trial.runs[0].records()[-1].get("x_sha256", "") for trial in folder.trials()}


def shown(uri: str, experiment: str) -> dict[str, dict[str, Any]]:
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
                if not name.endswith("_seconds") and not name.startswith("system/")
            },
            "parent": keys.get(each.data.tags.get("mlflow.parentRunId", "")),
            "status": (each.info.status, each.data.tags.get("status")),
        }
        for each in found
    }


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)
