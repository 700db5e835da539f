"""What callers of the Python interface may write, and which error they get for what they may not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from checkout import ROOT
from tasks import made_record, tiny_config

import fedmbo_ray
from fedmbo_ray import (
    ConfigError,
    FedmboError,
    Run,
    RunFailed,
    Study,
    Sweep,
    load,
    run_experiment,
    run_study,
    run_sweep,
)
from fedmbo_ray.api import study
from fedmbo_ray.api.sweep import as_words, plan_of, prepared_sweep
from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.cli.command import Parser
from fedmbo_ray.cli.run import parse
from fedmbo_ray.core.io import parse_yaml, to_yaml
from fedmbo_ray.methods.lower import LOWER
from fedmbo_ray.studies.plans import StudyFolder
from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.schema import make_sweep


def test_every_error_of_the_package_has_one_base() -> None:
    names = ("ConfigError", "DownloadError", "FolderDamaged", "FolderInUse", "RunFailed")
    assert all(issubclass(getattr(fedmbo_ray, name), FedmboError) for name in names)


def test_a_second_run_in_a_folder_says_that_the_first_is_open(tmp_path: Path) -> None:
    with Run(tiny_config(), out=tmp_path) as first:
        first.step()
        second = Run(out=tmp_path, resume=True)
        with pytest.raises(fedmbo_ray.FolderInUse, match="in use by a run that has not been closed, in this"):
            second.step()


def test_a_resumed_run_knows_its_records_before_it_is_stepped(tmp_path: Path) -> None:
    run_experiment(tiny_config(rounds=4, record={"every": 2}), out=tmp_path)
    run = Run(out=tmp_path, resume=True)
    assert (run.status, run.round, list(run.records["round"])) == ("finished", 4, [0, 2, 4])
    longer = Run(out=tmp_path, resume=True, rounds=7)
    assert (longer.status, longer.round, list(longer.records["round"])) == ("unfinished", 4, [0, 2, 4])
    assert torch.equal(longer.finish().x, run_experiment(tiny_config(rounds=7)).x)
    assert list(longer.records["round"]) == [0, 2, 4, 6, 7]


def test_what_a_method_raises_is_the_cause_of_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: InProcess, job: object, blocks: object) -> None:
        raise ZeroDivisionError("in my\nkernel")

    monkeypatch.setattr(InProcess, "run", broken)
    with pytest.raises(RunFailed, match=r"^a computation raised ZeroDivisionError: in my kernel$") as failed:
        run_experiment(tiny_config())
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_a_mapping_as_keyword_changes_the_keys_that_it_has() -> None:
    config = Run("quadratic").config
    changed = Run("quadratic", clients={"cohort_size": np.int64(5)}, algorithm={"lower": {"steps": 3}}).config
    assert changed.clients == config.clients.model_copy(update={"cohort_size": 5})
    assert changed.algorithm == replace(config.algorithm, lower=replace(config.algorithm.lower, steps=3))
    with pytest.raises(ConfigError, match="clients: unknown key 'cohort'"):
        Run("quadratic", clients={"cohort": 5})
    fields = {**config.resolved(), "record": {"every": np.int64(3)}, "rounds": np.int32(4)}
    assert (Run(fields).config.record.every, Run(fields).config.rounds) == (3, 4)


def test_a_file_may_have_an_equals_sign_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lr=1.yaml").write_bytes(to_yaml(tiny_config(rounds=3).resolved()))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for config in ("lr=1.yaml", "~/lr=1.yaml", tmp_path / "lr=1.yaml"):
        assert Run(config).config.rounds == 3
        assert plan_of(config, []).fields["rounds"] == 3
    with pytest.raises(ConfigError, match="can't read lr=2"):
        Run(Path("lr=2"))
    args = Parser("fedmbo_ray.run", "", "")
    args.add_argument("config", nargs="*")
    assert args.parse_config(["lr=1.yaml", "rounds=2"]).overrides == ["rounds=2"]


def test_a_tilde_is_the_user_s_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run_experiment(tiny_config(), out="~/run").folder == tmp_path / "run"
    assert load("~/run").folder == tmp_path / "run"
    assert parse(["--out=~/run"]).out == tmp_path / "run"
    assert prepared_sweep(SWEEP, [], "~/sweep", resume=False)[1].path == tmp_path / "sweep"


SWEEP = {**tiny_config().resolved(), "tune": {"seeds": 2}}


def test_changes_of_a_sweep_keep_their_types() -> None:
    changes = {
        "algorithm.step_size": {"grid": [1e-05, np.float64(0.5)]},
        "clients.cohort_size": {"grid": [np.int64(2), 3]},
        "algorithm.lower": {"grid": [LOWER["minibatch_sgd"](steps=n, step_size=0.1, batch_size=2) for n in (1, 2)]},
        "tune.retries": np.int64(1),
    }
    plan = plan_of(SWEEP, [(key.split("."), value) for key, value in changes.items()])
    values = {each.path: each.values for each in plan.dims}
    assert values["algorithm.step_size"] == (1e-05, 0.5)
    assert values["clients.cohort_size"] == (2, 3)
    assert [each["steps"] for each in values["algorithm.lower"]] == [1, 2]
    assert make_sweep(parse_yaml(to_yaml(plan.plain()).decode(), "sweep")).dims == plan.dims
    assert as_words({"a.b": Path("here"), "c": [np.int64(1)]}) == ['a.b="here"', "c=[1]"]
    with pytest.raises(ConfigError, match="seed: must be a number, text, a list or a mapping, as in YAML"):
        plan_of(SWEEP, [(["seed"], object())])


def test_numbers_that_yaml_takes_for_text_are_numbers_in_a_list() -> None:
    plan = plan_of(SWEEP, ["algorithm.step_size={grid: [1e-5, 1e-4, 0.5]}"])
    assert plan.dims[0].values == (1e-5, 1e-4, 0.5)


def test_a_sweep_is_plotted_though_some_runs_have_no_number_yet(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    with folder.claimed(make_sweep(SWEEP).plain()):
        folder.trial("00000").begin({"rounds": 3})
    for seed, values in enumerate([[None, 1.0, 0.5], [None]]):
        run = folder.trial("00000").run(seed)
        run.path.mkdir()
        run.describe({})
        for number, value in enumerate(values):
            run.append(made_record(number, communications=2 * number, mean_gap=value))
    (axes,) = load(tmp_path).plot("mean_gap", x="round").axes
    assert len(axes.get_lines()) == 1
    with pytest.raises(ConfigError, match="got 'mean_gop'; did you mean 'mean_gap'"):
        load(tmp_path).plot("mean_gop")


def test_a_study_takes_the_name_of_one_sweep_and_keywords(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []

    def conduct(name: str, folder: StudyFolder, *rest: object) -> int:
        calls.append(rest)
        folder.begin(name, "smoke")
        return 0

    monkeypatch.setattr("fedmbo_ray.api.study.run_prepared_study", conduct)
    run_study("theory", scale="smoke", out=tmp_path / "a", only="inner", progress=False, **{"tune.seeds": 2})
    command = "fedmbo study theory --scale smoke tune.seeds=2 --only inner"
    assert calls == [("smoke", [(["tune", "seeds"], 2)], ["inner"], command, False)]
    with pytest.raises(ConfigError, match="only must name sweeps of the study theory, but got 'iner'"):
        run_study("theory", only="iner")


def test_resume_needs_the_folder_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (run_experiment, run_sweep, lambda **words: run_study("theory", **words)):
        with pytest.raises(ConfigError, match=r"resume needs a folder with a .*, but nowhere has no"):
            call(out="nowhere", resume=True)
    assert study.prepared_study("theory", "smoke", None, resume=True).path.parent == Path("studies")


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    StudyFolder(tmp_path).begin("theory", "smoke")
    assert Study(tmp_path).scale == "smoke"
    with pytest.raises(ConfigError, match=r"a sweep was expected, but .* holds a study: open it with load"):
        Sweep(tmp_path)
    with pytest.raises(ConfigError, match="this needs the folder of a study, but /nonexistent does not exist"):
        Study("/nonexistent")


def test_a_run_that_another_has_begun_meanwhile_is_a_wrong_folder(tmp_path: Path) -> None:
    late = Run(tiny_config(), out=tmp_path)
    run_experiment(tiny_config(), out=tmp_path)
    with pytest.raises(ConfigError, match=r"already holds a run; continue it \(resume\) or choose another folder"):
        late.step()


def test_the_interface_does_not_speak_of_flags() -> None:
    for file in [*(ROOT / "fedmbo_ray/api").glob("*.py"), ROOT / "fedmbo_ray/runs/folder.py"]:
        errors = [line for line in file.read_text().splitlines() if "Error(" in line]
        assert not [line for line in errors if "--" in line], file
