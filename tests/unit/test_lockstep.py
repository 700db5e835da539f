"""Runs side by side in one process: fewer calls, the same bits."""

from typing import Any

import pytest
from tasks import ALGORITHM, tiny_config

from fedmbo_ray.backends.lockstep import SharedBackends, advance
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.federation.execution import run_together
from fedmbo_ray.problems.quadratic import Quadratic
from fedmbo_ray.runs.loop import run
from fedmbo_ray.runs.records import Record


def algorithms() -> dict[str, dict[str, Any]]:
    parts = {name: {**ALGORITHM["hypergradient"], "name": name} for name in ("phe", "phe_sum", "ihgp", "ihgp_sum")}
    return {
        **{name: {**ALGORITHM, "smoothness": 1.0, "hypergradient": part} for name, part in parts.items()},
        "local_neumann": {**ALGORITHM, "hypergradient": {"name": "local_neumann", "terms": 3, "batch_size": 2}},
        "d_soba": {"name": "d_soba", "batch_size": 3},
    }


def config(name: str, seed: int, n: int, **clients: Any) -> RunConfig:
    problem = {"name": "quadratic", "seed": 5, "nonconvexity": 0.5}
    clients = {"num_clients": 20, "cohort_size": n, "block_size": 4, **clients}
    return tiny_config(problem=problem, seed=seed, clients=clients, algorithm=algorithms()[name], record={"every": 2})


def side_by_side(configs: list[RunConfig]) -> list[list[Record]]:
    """The records of each run."""
    shared = SharedBackends()
    runs = [run(each, make_backend=shared) for each in configs]
    records: list[list[Record]] = [[] for _ in runs]
    while any(found := advance(runs)):
        for mine, record in zip(records, found, strict=True):
            mine += [record] if record is not None else []
    return records


def without_time(records: list[Record]) -> list[Record]:
    return [{key: value for key, value in record.items() if not key.endswith("_seconds")} for record in records]


@pytest.mark.parametrize("name", list(algorithms()))
@pytest.mark.parametrize("n", [1, 6])
def test_side_by_side_a_run_has_the_bits_that_it_has_alone(name: str, n: int) -> None:
    configs = [config(name, seed, n) for seed in range(5)]
    for each, together in zip(configs, side_by_side(configs), strict=True):
        assert without_time(together) == without_time(list(run(each)))


def test_runs_of_different_length_and_size_and_problem_don_t_disturb_each_other() -> None:
    configs = [
        config("phe", 0, 6),
        config("phe", 1, 3).model_copy(update={"rounds": 3}),
        config("ihgp", 2, 6, replace=False),
        config("phe", 3, 6).model_copy(update={"problem": Quadratic(seed=6)}),
    ]
    for each, together in zip(configs, side_by_side(configs), strict=True):
        assert without_time(together) == without_time(list(run(each)))


def test_what_runs_compute_at_the_same_time_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(task: Any, together: Any, device: Any) -> Any:
        calls.append(len(together))
        return run_together(task, together, device)

    monkeypatch.setattr("fedmbo_ray.backends.lockstep.run_together", counted)
    records = side_by_side([config("phe_sum", seed, 4) for seed in range(8)])
    assert records[0][-1]["round"] == 6
    assert len(calls) == 6 * (2 + 1)  # two steps below, then a relay
    assert set(calls) == {8}


def test_an_error_in_one_run_is_raised() -> None:
    runs = iter([{"round": 0}]), (1 / 0 for _ in range(1))
    with pytest.raises(ZeroDivisionError):
        advance(list(runs))
