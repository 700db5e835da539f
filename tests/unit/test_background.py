"""What is tried again when MLflow is told something, and what is not."""

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException
from requests.exceptions import ReadTimeout
from sqlalchemy.exc import OperationalError

from fedmbo_ray.api import study
from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.interruptions import stakes
from fedmbo_ray.tracking import background
from fedmbo_ray.tracking.background import BackgroundTracking, wait_for_mlflow

PASSING = [MlflowException("gone"), OperationalError("", {}, Exception()), ReadTimeout("slow"), ConnectionError("cut")]
LASTING = [OSError(28, "No space left on device"), KeyError("upper_loss"), ValueError("a mistake of ours")]


class Told:
    """A tracker whose steps raise an error some times."""

    uri, page = "nowhere", ""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.left, self.calls, self.forgotten = error, times, 0, 0

    def update(self) -> None:
        self.calls += 1
        if self.calls <= self.left:
            raise self.error

    conclude = interrupt = update

    def prepare(self) -> None:
        pass

    def forget(self) -> None:
        self.forgotten += 1


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background.time, "sleep", lambda seconds: None)


def kinds(errors: list[Exception]) -> Callable:
    return pytest.mark.parametrize("error", errors, ids=lambda error: type(error).__name__)


@kinds(PASSING)
def test_what_may_pass_is_tried_again(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    tracker = Told(error, times=2)
    assert BackgroundTracking(tracker).attempt(tracker.update) is False
    assert "can't be reached, records wait" in capsys.readouterr().err
    step = Told(error, times=2)
    wait_for_mlflow(step.update, "nowhere")
    assert (step.calls, tracker.forgotten) == (3, 1)


@kinds(LASTING)
def test_what_has_nothing_to_do_with_mlflow_is_raised_at_once(error: Exception, capsys) -> None:
    for attempted in (
        lambda tracker: BackgroundTracking(tracker).attempt(tracker.conclude),
        lambda tracker: wait_for_mlflow(tracker.conclude, "nowhere"),
    ):
        tracker = Told(error, times=2)
        with pytest.raises(type(error)):
            attempted(tracker)
        assert tracker.calls == 1
    assert capsys.readouterr().err == ""


def test_while_a_run_is_going_on_an_error_is_told_once_under_its_own_name(monkeypatch, capsys) -> None:
    monkeypatch.setattr(background, "SECONDS_BETWEEN_LOOKS", 0.001)
    tracker = Told(OSError(28, "No space left on device"), times=5)
    with BackgroundTracking(tracker) as following:
        while tracker.calls < 6:
            pass
        assert following.conclude()
    said = "MLflow is not brought up to date (OSError: [Errno 28] No space left on device)\n"
    assert capsys.readouterr().err == said


def test_a_run_that_ends_before_mlflow_is_ready_leaves_nothing_at_stake() -> None:
    ready, tracker = threading.Event(), Told(OSError(), times=0)
    tracker.prepare = ready.wait  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), BackgroundTracking(tracker) as following:
        raise KeyboardInterrupt
    ready.set()
    following.thread.join()
    assert (stakes, tracker.calls) == ([], 0)


def test_a_server_that_stays_away_is_told_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "PATIENCE", 0.0)
    with pytest.raises(RunFailed, match=r"MLflow at nowhere can't be reached: continue with --resume \(cut\)"):
        wait_for_mlflow(Told(ConnectionError("cut"), times=100).update, "nowhere")


def test_figures_are_drawn_once_however_often_mlflow_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, recorded = [], Told(ConnectionError("cut"), times=2)
    conclusion = SimpleNamespace(note=str, status="passed", text=lambda: "passed")
    monkeypatch.setattr("fedmbo_ray.analysis.conclusions.conclude", lambda *args: drawn.append(1) or conclusion)
    monkeypatch.setattr(
        "fedmbo_ray.analysis.mlflow_reader.Store", lambda uri: SimpleNamespace(study=lambda *args: None)
    )
    monkeypatch.setattr(study.MlflowExperiment, "connect", lambda self: None)
    run = SimpleNamespace(name="theory", identity="", command="", folder=SimpleNamespace(figures=None))
    run.conclude = lambda *args: recorded.update()
    study.judge_and_record(run, "nowhere")
    assert (len(drawn), recorded.calls) == (1, 3)
