"""A sweep whose trials end with their budget, on Ray Tune."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from tasks import ALGORITHM, tiny_config

from fedmbo_ray.runs.loop import run
from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.schema import make_sweep
from fedmbo_ray.sweeps.tuner import run_trials

EARLY = {"grace": 4, "reduction": 2}


@pytest.mark.parametrize("scheduler", ["fifo", {"name": "asha", **EARLY}, {"name": "halving", **EARLY}])
def test_trials_end_with_their_budget(cluster, tmp_path: Path, scheduler) -> None:
    hypergradient = {**ALGORITHM["hypergradient"], "terms": {"grid": [1, 3]}}
    fields = {
        **tiny_config(record={"every": 4}).resolved(),
        "rounds": None,
        "budget": {"communications": 60},
        "algorithm": {**ALGORITHM, "hypergradient": hypergradient},
    }
    sweep, folder = make_sweep({**fields, "tune": {"search": "grid", "scheduler": scheduler}}), SweepFolder(tmp_path)
    with folder.claimed(sweep.plain()):
        run_trials(sweep, folder, Console(file=io.StringIO()))
    finished = [trial for trial in folder.trials() if trial.status == "finished"]
    assert len(finished) == 2 if scheduler == "fifo" else finished
    for trial in finished:
        (last,), (*_, expected) = trial.lasts(), run(sweep.config(trial.point))
        assert last["ended_by"] == "communications"
        assert (last["round"], last["x_sha256"]) == (expected["round"], expected["x_sha256"])
