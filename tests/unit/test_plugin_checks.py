"""`fedmbo_ray.testing` passes what keeps the contract, and names what breaks it."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmbo_ray import Card, Clients, Cost, Dataset, Draw, State, oracles, settings
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.data.partitions import PARTITIONS
from fedmbo_ray.methods.algorithms import ALGORITHMS
from fedmbo_ray.methods.hypergradients import HYPERGRADIENTS
from fedmbo_ray.methods.lower import LOWER
from fedmbo_ray.methods.outer import OUTER
from fedmbo_ray.testing import (
    check_algorithm,
    check_estimator,
    check_learns,
    check_lower_solver,
    check_outer_step,
    check_partition,
    check_problem,
)


def test_shipped_components_pass() -> None:
    check_lower_solver("fedavg", local_steps=2)
    check_lower_solver("scaffold")
    check_estimator("ihgp")
    check_outer_step("fedout")
    check_algorithm("fednest")
    check_algorithm("soba")
    check_problem("quadratic")
    check_problem("hyper_cleaning")
    check_problem(
        "ridge_head", {"name": "small_data:numbers", "partition": "iid"}, backbone={"name": "mlp", "width": 4}
    )
    check_partition("dirichlet", alpha=1.0)
    assert check_learns(rounds=20).round == 20


def gradient(clients: Clients, x: Tensor, y: Tensor, cohort: int | None = None) -> Tensor:
    return clients.mean(oracles.grad_y_lower, clients.sample(cohort), x, y, draw=Draw("train", 4))


@settings
class Base:
    card: ClassVar[Card] = Card("", "ours", Cost("1", "p + q", "q"))

    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        return y - 0.1 * gradient(clients, x, y), kept


class GlobalNoise(Base):
    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        return super().solve(clients, x, y, kept)[0] + torch.randn_like(y), kept


class GlobalNumpy(Base):
    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        np.random.random()  # noqa: NPY002
        return super().solve(clients, x, y, kept)


class Writes(Base):
    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        return y.sub_(0.1 * gradient(clients, x, y)), kept


class Expensive(Base):
    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        return super().solve(clients, x, super().solve(clients, x, y, kept)[0], kept)


class Lonely(Base):
    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        rows = clients.map(oracles.grad_y_lower, clients.sample(), x, y, draw=Draw("train", 4))
        return y - 0.1 * rows.mean(0) / (rows - rows.mean(0)).norm(), kept  # nothing for a cohort of one


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (GlobalNoise, "the same seed must give the same bits"),
        (GlobalNumpy, "the global random states"),
        (Writes, "a state that is given to round must not be written to"),
        (Expensive, "must be as the card says"),
        (Lonely, "x and y must stay finite, but did not with clients: {'cohort_size': 1}"),
    ],
)
def test_a_solver_that_breaks_the_contract_is_told_what(cls: type, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOWER._classes, "broken", settings(cls))
    with pytest.raises(AssertionError) as caught:
        check_lower_solver("broken")
    assert said in str(caught.value)


def test_a_cost_that_is_off_by_one_float_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Talkative(Base):
        card: ClassVar[Card] = Card("", "ours", Cost("1", "p + q + 1", "q"))

    monkeypatch.setitem(LOWER._classes, "broken", settings(Talkative))
    with pytest.raises(AssertionError, match="must be as the card says"):
        check_lower_solver("broken")


def test_another_dtype_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    @settings
    class Doubles:
        def step(self, clients: Clients, x: Tensor, y: Tensor, h: Tensor, step_size: float) -> Tensor:
            return (x - step_size * h).double()

    monkeypatch.setitem(OUTER._classes, "broken", Doubles)
    with pytest.raises(AssertionError, match=r"x must be torch\.float32 of shape"):
        check_outer_step("broken")


def test_a_method_without_randomness_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    @settings
    class Still:
        def init(self, x: Tensor, y: Tensor, num_clients: int) -> dict[str, Tensor]:
            return {"x": x, "y": y}

        def round(self, clients: Clients, state: dict[str, Tensor]) -> dict[str, Tensor]:
            return state

    monkeypatch.setitem(ALGORITHMS._classes, "broken", Still)
    with pytest.raises(AssertionError, match="another seed must give other bits"):
        check_algorithm("broken")


def test_a_partition_that_gives_a_row_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    @settings
    class Generous:
        def split(self, data: Dataset, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
            return [np.arange(3) for _ in range(num_clients)]

    monkeypatch.setitem(PARTITIONS._classes, "broken", Generous)
    with pytest.raises(ConfigError, match="one client at most"):
        check_partition("broken")


def test_a_partition_with_randomness_of_its_own_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    own = np.random.default_rng(0)

    @settings
    class Moody:
        def split(self, data: Dataset, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
            return np.array_split(own.permutation(len(data.train_targets)), num_clients)

    monkeypatch.setitem(PARTITIONS._classes, "broken", Moody)
    with pytest.raises(AssertionError, match="the same seed must give the same rows"):
        check_partition("broken")


def test_a_config_that_does_not_learn_is_noticed() -> None:
    with pytest.raises(AssertionError, match="upper_loss must fall by a fifth"):
        check_learns("algorithm.lower.step_size=1e-6", "algorithm.step_size=1e-9", rounds=3)


def test_a_parameter_without_a_usual_value_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    @settings
    class Odd:
        wobble: float

        def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor) -> Tensor:
            return x

    monkeypatch.setitem(HYPERGRADIENTS._classes, "odd", Odd)
    with pytest.raises(AssertionError, match="to check 'odd', give a value for wobble"):
        check_estimator("odd")
