"""Runs that end when something is used up."""

import io
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tasks import ALGORITHM, tiny_config

from fedmbo_ray import ConfigError, RunConfig, run_experiment
from fedmbo_ray.backends.lockstep import SharedBackends, advance
from fedmbo_ray.core.components import construct
from fedmbo_ray.federation.execution import Seconds, run_together
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.limits import Limits, used
from fedmbo_ray.runs.loop import run
from fedmbo_ray.runs.progress import RunProgress
from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.progress import SweepProgress
from fedmbo_ray.sweeps.schedulers import NO_END
from fedmbo_ray.sweeps.schema import make_sweep
from fedmbo_ray.sweeps.trial import report_of

RECORD = {"every": 4, "checkpoint_every": 3}


def config(which: str = "quadratic", **changes: Any) -> RunConfig:
    return tiny_config(which, record=RECORD, **changes)


@pytest.mark.parametrize("name", ["communications", "floats", "samples", "data_epochs"])
def test_a_run_ends_with_the_round_in_which_its_budget_is_used_up(name: str) -> None:
    every = tiny_config("hyper_representation", rounds=8, record={"every": 1})
    amounts = [used(record)[name] for record in run(every)]
    assert amounts == sorted(set(amounts))
    for budget in (amounts[5], amounts[5] - amounts[5] / 1000):  # reached, and exceeded
        amount = budget if name == "data_epochs" else int(budget)
        *_, last = run(config("hyper_representation", rounds=None, budget={name: amount}))
        *_, expected = run(config("hyper_representation", rounds=5))
        assert (last["round"], last["status"], last["ended_by"]) == (5, "finished", name)
        assert (last["x_sha256"], last["y_sha256"]) == (expected["x_sha256"], expected["y_sha256"])


def test_the_first_of_several_ends_it() -> None:
    ends = {
        "rounds": config(rounds=3, budget={"communications": 10**6, "floats": 10**12}),
        "communications": config(rounds=100, budget={"communications": 20, "floats": 10**12}),
        "seconds": config(rounds=100, budget={"communications": 10**6, "seconds": 1e-9}),
    }
    lasts = {name: [*run(each)][-1] for name, each in ends.items()}
    assert [last["status"] for last in lasts.values()] == ["finished"] * 3
    assert [last.get("ended_by", "rounds") for last in lasts.values()] == list(ends)
    assert (lasts["rounds"]["round"], lasts["seconds"]["round"]) == (3, 0)


@pytest.mark.parametrize("stopped", [2, 5])
def test_a_run_with_a_budget_is_stopped_and_resumed(stopped: int, tmp_path: Path) -> None:
    limited, folder = config(rounds=None, budget={"communications": 60}), RunFolder(tmp_path)
    *_, expected = run(limited)
    rounds = [0]
    list(
        run(
            limited,
            folder,
            stop=lambda: rounds[0] >= stopped,
            tick=lambda round, share: rounds.append(rounds.pop() + 1),
        )
    )
    for _ in range(2):  # the second time it is at its end
        *_, last = run(limited, folder, resume=True)
        assert last["x_sha256"] == expected["x_sha256"]
        assert (last["round"], last["ended_by"]) == (expected["round"], "communications")
        assert [record["round"] for record in folder.records()] == [*range(0, last["round"], 4), last["round"]]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"rounds": None}, "rounds: is required unless a budget ends the run, such as budget.communications=440"),
        ({"budget": {}}, "budget: must limit at least one of communications, floats, samples, data_epochs, seconds"),
        ({"budget": {"communications": 0}}, "budget.communications: input should be greater than or equal to 1, but"),
        ({"budget": {"bytes": 1}}, "budget: unknown key 'bytes'; known: communications, floats, samples"),
        (
            {
                "rounds": None,
                "budget": {"communications": 5},
                "algorithm": {**ALGORITHM, "step_size": {"name": "sqrt_speedup", "scale": 1}},
            },
            "rounds: is required even with a budget, since algorithm.step_size depends on it",
        ),
    ],
)
def test_bad_budgets_get_one_line(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(**changes)
    assert str(error.value).startswith(line)


def test_epochs_of_endless_data_are_no_budget() -> None:
    with pytest.raises(ConfigError, match=r"budget\.data_epochs: needs data of a fixed size"):
        run_experiment(config(budget={"data_epochs": 1}))


def test_a_budget_is_set_from_outside() -> None:
    last = run_experiment("budget.communications=30", rounds=None).last
    assert last["ended_by"] == "communications"
    assert last["communications"] >= 30


def test_progress_goes_by_the_share_that_is_used_up(capsys) -> None:
    limits = Limits.of(config(rounds=None, budget={"communications": 200, "floats": 1000}))
    record = {"round": 3, "communications": 50, "samples": 0, "floats_up": 300, "floats_down": 450, "wall_seconds": 1.0}
    assert limits.share(record) == 0.75
    assert limits.text == "200 communications, or 1000 floats"
    with RunProgress(limits) as progress:
        progress.show({**record, "status": "finished"})
    assert capsys.readouterr().err.startswith("round 3 (75%)")


def test_a_sweep_s_trials_end_with_their_budget(tmp_path: Path, monkeypatch) -> None:
    fields = {**config().resolved(), "rounds": None, "budget": {"communications": {"grid": [100, 200]}}}
    sweep = make_sweep({**fields, "tune": {"search": "grid", "scheduler": "asha"}})
    assert sweep.rounds is None
    assert sweep.length == "as many rounds as the budget lasts"
    assert sweep.tune.scheduler.make({}, NO_END) is not None
    record = {"round": 3, "communications": 50, "samples": 0, "floats_up": 0, "floats_down": 0, "wall_seconds": 1.0}
    limits = Limits.of(sweep.config({"budget.communications": 200}))
    assert report_of(sweep, limits, [{**record, "upper_loss": 2.0}]) == {"round": 3, "share": 0.25, "score": 2.0}
    folder = SweepFolder(tmp_path)
    with folder.claimed(sweep.plain()):
        folder.trial("00001").begin({"budget.communications": 200})
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now)
        progress = SweepProgress(sweep, folder, 2, Console(file=io.StringIO()))
        now += 6.0
        progress.heard("00001", 3, 0.5, 2.0)
        assert progress.line().endswith("ETA 18 s")
        assert progress.rounds_of("00001", 3) == "3"


def test_times_of_runs_side_by_side_are_their_own() -> None:
    """They add up to at most what this thread has spent, and are unlike the time that all share."""
    fields = tiny_config(problem={"name": "quadratic", "seed": 5}, rounds=20).resolved()
    shared, began = SharedBackends(), Seconds.now()
    runs = [run(construct(RunConfig, {**fields, "seed": seed}), make_backend=shared) for seed in range(6)]
    lasts: list[Any] = []
    while any(found := advance(runs)):
        lasts = [last for last in found if last is not None]
    spent = Seconds.now().minus(began)
    for name, seconds in (("wall_seconds", spent.wall), ("cpu_seconds", spent.cpu)):
        times = [last[name] for last in lasts]
        assert len(times) == 6
        assert min(times) > 0
        assert sum(times) <= seconds + 6 * 0.0005


def test_a_budget_of_seconds_is_of_the_run_alone(monkeypatch) -> None:
    """Every call takes a second by a clock that nothing else moves: six runs share it."""
    now = [0.0]

    def slow(*args: Any) -> Any:
        now[0] += 1.0
        return run_together(*args)

    monkeypatch.setattr(Seconds, "now", staticmethod(lambda: Seconds(now[0], now[0])))
    monkeypatch.setattr("fedmbo_ray.backends.lockstep.run_together", slow)
    limited = config(problem={"name": "quadratic", "seed": 5}, rounds=None, budget={"seconds": 10.0})
    shared, ends = SharedBackends(), []
    runs = [run(limited.model_copy(update={"seed": seed}), make_backend=shared) for seed in range(6)]
    while any(found := advance(runs)):
        ends = [last for last in found if last is not None]
    assert [end["ended_by"] for end in ends] == ["seconds"] * 6
    assert min(end["communications"] for end in ends) > 40  # ten by the time that all share
