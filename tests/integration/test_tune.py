"""The command that sweeps: in real processes with real signals, on a Ray of its own, recorded in a real MLflow."""

import json
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
from forked import Forked, Forks
from small_sweeps import SMALL, all_records, lines_of, shown, wait_for
from tasks import reference

from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.core.io import read_yaml
from fedmbo_ray.runs.loop import run
from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.ranking import ranked
from fedmbo_ray.sweeps.schema import make_sweep

Start = Callable[..., Forked]


@pytest.fixture
def start(forks: Forks, tmp_path: Path) -> Start:
    return partial(forks.start, "-m", "fedmbo_ray.tune", cwd=tmp_path)


def test_what_is_killed_goes_on_as_if_nothing_had_happened(start: Start, tmp_path: Path) -> None:
    words = [*SMALL, "rounds=90", "--out", "sweeps/a"]
    process, trials = start(*words), tmp_path / "sweeps/a/trials"
    wait_for(lambda: lines_of(trials / "00000") >= 3)
    family = psutil.Process(process.pid).children(recursive=True)
    trial = next(each for each in family if "ImplicitFunc" in " ".join(each.cmdline()))  # as Tune calls it
    trial.kill()
    wait_for(lambda: lines_of(trials / "00001") >= 6 and lines_of(trials / "00000") >= 6)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    code, out, err = start(*words, "--resume", "--json").finish()
    assert code == 0, err
    assert "best config: fedmbo run sweeps/a/best.yaml" in err

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


@pytest.mark.slow
def test_ctrl_c_saves_the_last_round_of_every_trial(start: Start, database: str, tmp_path: Path) -> None:
    every = ["record.every=1", "record.checkpoint_every=100000"]
    process = start(*SMALL, "rounds=100000", *every, "--out", "sweeps/a")
    wait_for(lambda: lines_of(tmp_path / "sweeps/a/trials/00000") >= 2)
    process.send_signal(signal.SIGINT)
    code, _, err = process.finish()
    assert code == 130
    assert err.strip().splitlines()[-1] == "interrupted; continue: python -m fedmbo_ray.tune --out sweeps/a --resume"
    folder = SweepFolder(tmp_path / "sweeps/a")
    assert {each.status for each in folder.trials()} == {"running"}
    runs = [run for each in folder.trials() for run in each.runs if run.records()]
    assert [max(run.saved_round(), 0) for run in runs] == [run.records()[-1]["round"] for run in runs]
    assert not folder.stop_file.exists()
