"""Runs as Python objects: what a notebook does with them, and that it finds itself unchanged afterwards."""

import doctest
import io
import json
import os
import random
import signal
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from tasks import tiny_config

import fedmbo_ray.api.experiment
import fedmbo_ray.api.run
from fedmbo_ray import ConfigError, Run, RunFailed, load, run_experiment
from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.cli.run import main
from fedmbo_ray.core.errors import FolderDamaged
from fedmbo_ray.runs.state import sha256

SMALL = {"record.every": 2, "clients.num_clients": 20}
WORDS = ["record.every=2", "clients.num_clients=20"]


def command(*words: str) -> tuple[int, str, str]:
    """What the command line makes of it, in this process."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(list(words))
    return code, out.getvalue(), err.getvalue()


def surroundings() -> dict[str, Any]:
    settings = {key: matplotlib.rcParams[key] for key in matplotlib.rcParams if key != "backend"}  # asking chooses one
    return {
        "stdout": (sys.stdout, sys.stderr, sys.excepthook),
        "signals": {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)},
        "threads": torch.get_num_threads(),
        "backend": (matplotlib.get_backend(auto_select=False), settings),
        "environment": dict(os.environ),
        "filters": list(warnings.filters),
        "folder": os.getcwd(),
        "torch": torch.get_rng_state().tolist(),
        "numpy": np.random.get_state()[1].tolist(),  # noqa: NPY002
        "random": random.getstate(),
    }


@pytest.fixture
def two_threads() -> Any:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def without_times(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if not key.endswith("_seconds")} for record in records]


@pytest.mark.usefixtures("two_threads")
def test_two_runs_in_one_process_are_those_of_the_command_line_and_leave_nothing_changed(tmp_path: Path) -> None:
    run_experiment(rounds=1)  # libraries that are imported for the first time have warnings of their own to filter
    before = surroundings()
    first = run_experiment(rounds=5, out=tmp_path / "first", **SMALL)
    second = run_experiment(Path("tune_configs/quadratic.yaml"), "algorithm.step_size=0.05", rounds=4, seed=3)
    first.plot("test_accuracy", x="samples").savefig(tmp_path / "picture.png")
    assert surroundings() == before
    assert list(first.records["round"]) == [0, 2, 4, 5]
    assert list(second.records["round"]) == [0, 4]
    assert first.records["test_accuracy"].dtype == float
    for run, words in (
        (first, [*WORDS, "rounds=5"]),
        (second, ["tune_configs/quadratic.yaml", "rounds=4", "seed=3", "algorithm.step_size=0.05"]),
    ):
        code, out, err = command(*words, "--json", "--out", str(tmp_path / words[-1]))
        assert code == 0, err
        assert without_times([json.loads(out)]) == without_times([run.last])
        assert (sha256(run.x), sha256(run.y)) == (run.last["x_sha256"], run.last["y_sha256"])


def test_a_run_that_is_stepped_is_the_run() -> None:
    config = tiny_config(rounds=5, record={"every": 2})
    whole = run_experiment(config)
    with Run(config) as run:
        assert (run.round, run.status, run.done, len(run.records)) == (0, "unfinished", False, 0)
        made = []
        for k in range(1, 6):
            made.append(run.step())
            assert run.round == k
    assert [record and record["round"] for record in made] == [None, 2, None, 4, 5]
    assert run.step() is None
    assert without_times(run.records.to_dict("records")) == without_times(whole.records.to_dict("records"))
    assert torch.equal(run.x, whole.x)
    assert without_times(list(Run(config))) == without_times(list(whole))


def test_a_closed_run_goes_on_from_its_folder_and_another_does_not(tmp_path: Path) -> None:
    config = tiny_config(rounds=5, record={"every": 2})
    whole = run_experiment(config)
    kept, lost = Run(config, out=tmp_path / "kept"), Run(config)
    for run in (kept, lost):
        for _ in range(3):
            run.step()
        run.close()
    assert torch.equal(kept.x, lost.x)
    assert torch.equal(kept.finish().x, whole.x)
    with pytest.raises(RunFailed, match="was closed, and it has no folder"):
        lost.step()


def test_a_folder_is_opened_finished_or_not(tmp_path: Path) -> None:
    config, folder = tiny_config(rounds=5, record={"every": 2}), tmp_path / "run"
    with Run(config, out=folder) as run:
        for _ in range(3):
            run.step()
    begun = load(folder)
    assert (begun.config, begun.folder, begun.status) == (config, folder, "unfinished")
    assert list(begun.records["round"]) == [0, 2]
    checkpoint = begun.checkpoint()
    assert checkpoint is not None
    assert (checkpoint.round, set(checkpoint.state) >= {"x", "y"}) == (3, True)
    assert torch.equal(begun.x, checkpoint.state["x"])
    whole = run_experiment(config)
    assert torch.equal(begun.finish().x, whole.x)
    read = load(str(folder))
    assert (read.status, read.round) == ("finished", 5)
    assert without_times(read.records.to_dict("records")) == without_times(begun.records.to_dict("records"))
    assert torch.equal(read.y, whole.y)
    before = (folder / "records.jsonl").read_bytes()
    assert (read.step(), read.finish()) == (None, read)
    assert (folder / "records.jsonl").read_bytes() == before


def test_numpy_opens_result_and_checkpoints(tmp_path: Path) -> None:
    run = run_experiment(tiny_config("hyper_representation"), out=tmp_path)
    result = np.load(tmp_path / "result.npz")
    assert sorted(result.files) == ["x", "y"]
    assert np.array_equal(result["x"], run.x.numpy())
    assert np.array_equal(result["y"], run.y.numpy())
    newest = np.load(max((tmp_path / "checkpoints").glob("*.npz")))
    assert np.array_equal(newest["x"], result["x"])
    assert json.loads(newest["_about"].item())["costs"]["round"] == 6


def test_a_damaged_result_is_told(tmp_path: Path) -> None:
    run_experiment(tiny_config(), out=tmp_path)
    content = bytearray((tmp_path / "result.npz").read_bytes())
    content[100] ^= 1
    (tmp_path / "result.npz").write_bytes(content)
    with pytest.raises(FolderDamaged, match=r"result\.npz is damaged: resuming the run makes it again"):
        _ = load(tmp_path).x
    again = run_experiment(out=tmp_path, resume=True)
    assert torch.equal(load(tmp_path).x, again.x)


def test_a_folder_of_version_0_1_says_so(tmp_path: Path) -> None:
    run_experiment(tiny_config(), out=tmp_path)
    for path in (tmp_path / "checkpoints").glob("*.npz"):
        path.rename(path.with_suffix(".pt"))
    (tmp_path / "result.npz").unlink()
    code, _, err = command("--out", str(tmp_path), "--resume")
    assert code == 1
    assert err.splitlines()[-1] == f"error: {tmp_path} holds a run of version 0.1, which only that version can continue"


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("calls", [1, 15])
def test_an_interrupt_leaves_a_folder_to_go_on_from(calls: int, tmp_path: Path, monkeypatch) -> None:
    config, left, before = tiny_config(rounds=5), [calls], surroundings()
    original = InProcess.run

    def interrupted(self: InProcess, job: Any, blocks: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return original(self, job, blocks)

    with monkeypatch.context() as patch:
        patch.setattr(InProcess, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_experiment(config, out=tmp_path)
    assert surroundings() == before
    resumed = run_experiment(out=tmp_path, resume=True)
    assert torch.equal(resumed.x, run_experiment(config).x)


def test_the_model_is_the_one_that_was_evaluated() -> None:
    from sklearn.datasets import load_digits

    run = run_experiment(rounds=5, **SMALL)
    module, problem = run.model(), run._built()
    with torch.no_grad():
        here = problem.test.inputs * problem.data.scaling.std + problem.data.scaling.mean
        found = float((module(here).argmax(1) == problem.test.targets).double().mean())
    assert found == pytest.approx(run.last["test_accuracy"])
    assert float(here.max()) == load_digits().images.max()  # inputs as the data set has them
    with pytest.raises(ConfigError, match="QuadraticProblem has no model"):
        run_experiment(tiny_config()).model()


def test_a_plot_belongs_to_nobody() -> None:
    run = run_experiment(tiny_config(rounds=5, record={"every": 1}))
    figure = run.plot("hypergradient_norm_sq", x="round")
    (line,) = figure.axes[0].get_lines()
    assert list(line.get_xdata()) == [0, 1, 2, 3, 4, 5]
    assert list(line.get_ydata()) == list(run.records["hypergradient_norm_sq"])
    assert figure._repr_png_().startswith(b"\x89PNG")  # what a notebook shows
    with pytest.raises(ConfigError, match="unknown figure 'hypergradient_norm'; did you mean 'hypergradient_norm_sq'"):
        run.plot("hypergradient_norm")


def test_a_config_may_be_many_things(tmp_path: Path) -> None:
    fields = tiny_config().resolved()
    (tmp_path / "tiny.yaml").write_text(json.dumps(fields))
    before = json.dumps(fields)
    given: list[Any] = [fields, tiny_config(), tmp_path / "tiny.yaml", str(tmp_path / "tiny.yaml")]
    configs = [Run(each, "algorithm.lower.steps=1", rounds=np.int64(3)).config for each in given]
    assert all(config == configs[0] for config in configs)
    assert (configs[0].rounds, configs[0].algorithm.lower.steps) == (3, 1)
    assert json.dumps(fields) == before
    assert Run("rounds=3", **{"clients.cohort_size": 4}).config.clients.cohort_size == 4


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["algorithm.hypergradient.terms=0"], {"algorithm.hypergradient.terms": 0}),
        (["clients.num_clients=2000"], {"clients.num_clients": 2000}),
        (["nonsense=1"], {"nonsense": 1}),
        (["--resume", "--out", "nowhere"], {"resume": True, "out": "nowhere"}),
        (["--out", "/proc/none"], {"out": "/proc/none"}),
    ],
)
def test_bad_input_is_one_line_the_command_s_own(words: list[str], arguments: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        run_experiment(**arguments)
    out = [] if "--out" in words else ["--out", str(tmp_path / "run")]
    assert command(*words, *out) == (2, "", f"error: {error.value}\n")


def test_what_is_no_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must be a RunConfig, a mapping, a path or None, but got \[1\]"):
        run_experiment([1])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"can't read nowhere\.yaml: No such file"):
        run_experiment("nowhere.yaml")
    run_experiment(tiny_config(), out=tmp_path)
    with pytest.raises(ConfigError, match=r"already holds a run; continue it \(resume\) or choose"):
        run_experiment(tiny_config(), out=tmp_path)


def test_progress_shows_where_it_is_asked_for(capsys) -> None:
    run_experiment(tiny_config(rounds=3))
    assert capsys.readouterr() == ("", "")
    run_experiment(tiny_config(rounds=3), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("round 3/3  ")


@pytest.mark.parametrize("module", [fedmbo_ray.api.run, fedmbo_ray.api.experiment])
def test_the_examples_in_docstrings_run(module: ModuleType) -> None:
    tests = [each for each in doctest.DocTestFinder().find(module) if each.examples]
    assert tests
    for test in tests:
        assert doctest.DocTestRunner().run(test).failed == 0
