"""load: what it says of folders that it can't load. What it loads is in the tests of runs and sweeps."""

import json
import logging
import os
import signal
from pathlib import Path

import pytest
from tasks import made_record

from fedmbo_ray import ConfigError, load
from fedmbo_ray.core.process_state import environment_kept, environment_with, handlers_without, log_levels_kept
from fedmbo_ray.studies.plans import StudyFolder
from fedmbo_ray.studies.questions import QUESTIONS
from fedmbo_ray.sweeps.folder import SweepFolder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with something of every kind."""
    for name in ("a", "b"):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        (run / "config.yaml").write_text("{}")
        (run / "records.jsonl").write_text(json.dumps(made_record(0, upper_loss=1.0)) + "\n")
        (run / "checkpoints").mkdir()
    with SweepFolder(tmp_path / "sweeps" / "s").claimed({"tune": {"seeds": 1}}):
        SweepFolder(tmp_path / "sweeps" / "s").trial("00000").begin({"rounds": 3})
    StudyFolder(tmp_path / "studies" / "t").begin("theory", "smoke")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.yaml").write_text("{}")
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.html").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other" / "sub").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("nosuch", "does not exist"),
        ("empty", "is empty"),
        ("other", "holds none of them: sub"),
        ("runs", "holds 2 runs: load one of them, such as {here}/runs/b"),
        ("sweeps", "holds 1 sweep: load one of them, such as {here}/sweeps/s"),
        ("studies", "holds 1 study: load one of them, such as {here}/studies/t"),
        ("sweeps/s/trials", "is a part of the sweep in {here}/sweeps/s: load that"),
        (
            "sweeps/s/trials/00000",
            "is a trial of the sweep {here}/sweeps/s: load that, or one of its runs, "
            "{here}/sweeps/s/trials/00000/seed_000",
        ),
        ("runs/a/records.jsonl", "is a file; perhaps you mean {here}/runs/a"),
        ("report/report.html", "is a file"),
        ("runs/a/checkpoints", "is a part of the run in {here}/runs/a: load that"),
        ("report", "is a report: open report.html in a browser"),
        ("begun", "has a config.yaml but no records: its run has not reached its first record"),
    ],
)
def test_what_can_not_be_loaded_is_said_in_one_line(here: Path, folder: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(here / folder)
    expected = f"this needs the folder of a run, a sweep or a study, but {here / folder} {said.format(here=here)}"
    assert str(caught.value) == expected


def test_a_study_that_is_not_judged_is_open(here: Path) -> None:
    study = load(here / "studies/t")
    assert (study.name, study.scale, study.verdict, study.question) == (
        "theory",
        "smoke",
        "open",
        QUESTIONS["theory"].text,
    )
    assert list(study.claims.columns) == ["text", "rule", "measured", "status", "certified", "p"]
    assert (len(study.claims), study.figures, study.sweeps) == (0, [], {})


def test_what_a_process_shares_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.delenv("NEW", raising=False)
    handler, level = signal.getsignal(signal.SIGTERM), logging.getLogger("some").level

    def theirs(number: int, frame: object) -> None: ...

    theirs.__module__ = "some.package"

    def change() -> None:
        with environment_with({"KEPT": "2", "NEW": "3"}):
            assert (os.environ["KEPT"], os.environ["NEW"]) == ("2", "3")
        assert (os.environ["KEPT"], os.environ.get("NEW")) == ("1", None)
        os.environ["NEW"] = "4"
        del os.environ["KEPT"]
        signal.signal(signal.SIGTERM, theirs)
        logging.getLogger("some").setLevel(logging.CRITICAL)
        raise KeyError

    with pytest.raises(KeyError), handlers_without("some"), environment_kept("KE", "NEW"), log_levels_kept("some"):
        change()
    assert (os.environ["KEPT"], os.environ.get("NEW")) == ("1", None)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert logging.getLogger("some").level == level
