"""run_sweep, run_study and load: as a notebook calls them, on a Ray of their own, recorded in a real MLflow."""

import json
import os
import shutil
from pathlib import Path

import pytest
from forked import Forks
from mlflow import MlflowClient

from fedmbo_ray import ConfigError, Study, Sweep, load, run_study, run_sweep

CONFIG = {
    "problem": {"name": "quadratic"},
    "clients": {"num_clients": 20, "cohort_size": 4},
    "algorithm": {
        "name": "fedmbo",
        "step_size": {"grid": [0.01, 0.02]},
        "lower": {"steps": 2, "step_size": 0.1, "batch_size": 4},
        "hypergradient": {"terms": 3, "batch_size": 4},
    },
    "rounds": 10,
    "record": {"every": 5},
    "tune": {"seeds": 2},
}
NOTEBOOK = """
import asyncio, json, logging, os, signal, sys
import matplotlib, mlflow, torch
import ray  # what an import changes is its own affair
from fedmbo_ray import run_study, run_sweep

def state():
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    levels = [logging.getLogger(name).level for name in ("", "ray", "ray.tune", "mlflow", "alembic")]
    hooks = [sys.stdout, sys.stderr, sys.excepthook]
    figures = {**matplotlib.rcParams, "backend": matplotlib.get_backend(auto_select=False)}
    tracking = [mlflow.get_tracking_uri(), mlflow.active_run().info.run_id]
    return {"environment": dict(os.environ), "handlers": handlers, "levels": levels, "hooks": hooks,
            "figures": figures, "tracking": tracking, "threads": torch.get_num_threads(), "ray": ray.is_initialized()}

async def main():
    torch.set_num_threads(2)
    mlflow.set_tracking_uri("sqlite:///elsewhere.db")
    mlflow.start_run()
    before = state()
    tracking = f"tune.tracking_uri=sqlite:///{os.getcwd()}/mlflow.db"
    sweep = run_sweep(json.loads(sys.argv[1]), tracking, out="sweep")
    assert list(sweep.trials["status"]) == ["finished", "finished"]
    sweep.plot().savefig("sweep.png")
    alone = run_sweep(json.loads(sys.argv[1]), "tune.tracking_uri=sqlite:///none.db", out="alone", track=False)
    assert list(alone.trials["status"]) == ["finished", "finished"] and not os.path.exists("none.db")
    words = ["tune.seeds=2", tracking]
    await asyncio.to_thread(run_study, "theory", *words, scale="smoke", only=["inner"], out="study")
    for name, value in state().items():
        assert value == before[name], (name, before[name], value)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def notebook(forks: Forks, empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a program has run a sweep, and in another thread a study; it checks that nothing changed."""
    where = tmp_path_factory.mktemp("notebook")
    for name in ("mlflow.db", "elsewhere.db"):
        shutil.copy(empty_database, where / name)
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    code, out, err = forks.run("-c", NOTEBOOK, json.dumps(CONFIG), cwd=where, env=environment)
    assert code == 0, err[-3000:]
    assert (out, [line for line in err.splitlines() if "trial" in line or "MLflow" in line]) == ("", [])
    return where


def test_a_sweep_is_a_table_of_trials_the_best_first(notebook: Path) -> None:
    sweep = load(notebook / "sweep")
    assert isinstance(sweep, Sweep)
    trials = sweep.trials
    assert sorted(trials.index) == ["00000", "00001"]
    assert set(trials["algorithm.step_size"]) == {0.01, 0.02}
    assert list(trials["round"]) == [10, 10]
    assert trials["score"].is_monotonic_increasing
    assert (trials["score"] == trials["upper_loss"]).all()


def test_a_sweep_has_a_run_for_every_trial_and_seed(notebook: Path) -> None:
    sweep = load(notebook / "sweep")
    assert isinstance(sweep, Sweep)
    assert [run.config.seed for run in sweep.runs] == [0, 1, 0, 1]
    assert [list(run.records["round"]) for run in sweep.runs] == [[0, 5, 10]] * 4
    means = [
        sweep.runs[i].records["upper_loss"].iloc[-1] / 2 + sweep.runs[i + 1].records["upper_loss"].iloc[-1] / 2
        for i in (0, 2)
    ]
    assert sweep.trials.loc[["00000", "00001"], "upper_loss"].tolist() == pytest.approx(means, rel=1e-12)
    assert sweep.best.config.algorithm.step_size.value == sweep.trials["algorithm.step_size"].iloc[0]
    assert sweep.best.records["upper_loss"].iloc[-1] in [run.records["upper_loss"].iloc[-1] for run in sweep.runs]


def test_a_sweep_draws_its_curves(notebook: Path) -> None:
    sweep = load(notebook / "sweep")
    assert isinstance(sweep, Sweep)
    (axes,) = sweep.plot("hypergradient_norm_sq", x="round").axes
    assert [line.get_label() for line in axes.get_lines()] == [f"step_size={each}" for each in ("0.02", "0.01")]
    assert (notebook / "sweep.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(ConfigError, match="got 'upper_los'; did you mean 'upper_loss'"):
        sweep.plot("upper_los")


def test_mlflow_has_what_was_run_from_python(notebook: Path) -> None:
    client = MlflowClient(f"sqlite:///{notebook}/mlflow.db")
    found = client.search_runs([client.get_experiment_by_name("sweep").experiment_id])
    assert sorted(run.data.tags["fedmbo.key"] for run in found) == sorted(
        ["", *(f"0000{trial}{seed}" for trial in (0, 1) for seed in ("", "/0", "/1"))]
    )
    assert {run.info.status for run in found} == {"FINISHED"}


def test_a_study_has_a_verdict_and_a_table_of_claims(notebook: Path) -> None:
    study = load(notebook / "study")
    assert isinstance(study, Study)
    assert (study.name, study.scale) == ("theory", "smoke")
    assert study.verdict == "open"  # one of its sweeps was not run
    assert list(study.sweeps) == ["inner"]
    assert set(study.claims["status"]) <= {"holds", "fails", "open"}
    assert "estimator was not run to its end" in list(study.claims["measured"])
    assert [figure.name for figure in study.figures] == ["inner.png"] or study.figures == []


def test_a_bad_call_is_one_line_and_starts_nothing(notebook: Path, tmp_path: Path) -> None:
    for call, said in (
        (lambda: run_sweep(CONFIG, "rounds=0", out=tmp_path / "a"), "rounds: "),
        (lambda: run_sweep(CONFIG, out=tmp_path / "a", **{"tune.metric": "loss"}), "tune.metric: must be a figure"),
        (lambda: run_sweep("nosuch", out=tmp_path / "a"), "can't read nosuch"),
        (lambda: run_sweep(3, out=tmp_path / "a"), "a config must be a file, a name or a mapping, but got int"),
        (lambda: run_sweep(CONFIG, out=notebook / "sweep"), "already holds a sweep"),
        (lambda: run_sweep(out=notebook / "sweep", resume=True, rounds=11), "these keys differ: rounds"),
        (lambda: run_sweep(CONFIG, scale="smal", out=tmp_path / "a"), "unknown scale 'smal'"),
        (lambda: run_study("teory"), "unknown study 'teory'; did you mean 'theory'?"),
        (lambda: run_study("theory", scale="smal"), "unknown scale 'smal'"),
        (lambda: run_study("clients", scale="smoke", out=notebook / "study", resume=True), "must keep the study"),
        (lambda: run_study("theory", only=["iner"]), "did you mean 'inner'?"),
    ):
        with pytest.raises(ConfigError) as caught:
            call()
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
