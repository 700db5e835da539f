"""What callers of the Python interface may write, and which error they get for what they may not."""

from pathlib import Path

import pytest
import torch
from tasks import tiny_config

import fedmbo_ray
from fedmbo_ray import FedmboError, Run, RunFailed, run_experiment
from fedmbo_ray.backends.in_process import InProcess


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
    with pytest.raises(RunFailed, match="^a computation raised ZeroDivisionError: in my kernel$") as failed:
        run_experiment(tiny_config())
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
