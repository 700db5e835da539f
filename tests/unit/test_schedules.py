"""Step sizes as functions of the round, and which of them depend on how long a run is."""

from typing import ClassVar

import pytest
from tasks import federation, tiny_config, tiny_task

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import stream
from fedmbo_ray.core.settings import settings
from fedmbo_ray.federation.rounds import Round
from fedmbo_ray.methods.algorithms.fedbio import FedBiOAcc
from fedmbo_ray.methods.algorithms.soba import DSOBA
from fedmbo_ray.methods.schedules import Constant, Decay, SqrtSpeedup, uses_horizon


def test_values() -> None:
    assert [Constant(0.3)(Round(k, None, 5)) for k in (0, 7)] == [0.3, 0.3]
    assert SqrtSpeedup(2.0)(Round(k=3, K=400, n=16)) == pytest.approx(2.0 * (16 / 400) ** 0.5)
    assert Decay(0.5, power=1.0, offset=10.0)(Round(10, None, 5)) == pytest.approx(0.25)


def test_clients_know_their_round() -> None:
    clients = federation(tiny_task("quadratic"), 6, rounds=50).clients(stream(0), round=3)
    assert clients.now == Round(k=3, K=50, n=6)


def test_a_step_size_that_needs_the_number_of_rounds_says_so() -> None:
    with pytest.raises(ConfigError, match="`rounds` \\(K\\) must be given") as caught:
        SqrtSpeedup(1.0)(Round(0, None, 5))
    assert "\n" not in str(caught.value)


def test_schedules_that_depend_on_the_horizon_are_found_wherever_they_are() -> None:
    assert uses_horizon(tiny_config().algorithm) is None
    assert uses_horizon(DSOBA(system_step_size=SqrtSpeedup(1.0))) == ("system_step_size",)
    lower = {"name": "minibatch_sgd", "steps": 1, "step_size": {"name": "sqrt_speedup", "scale": 1}, "batch_size": 4}
    algorithm = {"name": "double_loop", "step_size": 0.1, "smoothness": 1, "lower": lower, "hypergradient": "exact"}
    assert uses_horizon(tiny_config(algorithm=algorithm).algorithm) == ("lower", "step_size")
    assert uses_horizon(SqrtSpeedup(1.0)) == ()


def test_another_packages_schedule_declares_it_or_is_taken_not_to() -> None:
    @settings
    class Linear:
        uses_horizon: ClassVar[bool] = True

        def __call__(self, now: Round) -> float:
            return 1 - now.k / (now.K or 1)

    @settings
    class Silent:
        def __call__(self, now: Round) -> float:
            return 1.0

    assert uses_horizon({"step_size": Linear()}) is None  # only fields of components are looked at
    assert uses_horizon(Linear()) == ()
    assert uses_horizon(Silent()) is None


def test_a_momentum_whose_weight_is_above_one_in_round_zero_is_refused() -> None:
    weights = FedBiOAcc(momentum=0.5, rate=Decay(1.0, power=0.5)).weights(Round(3, 100, 5))
    assert weights == pytest.approx((0.5 / 4,))
    clients = {"num_clients": 6, "cohort_size": 6}
    with pytest.raises(ConfigError, match="algorithm: a momentum's weight must be at most 1, but is 2 \\* 1;"):
        tiny_config(algorithm={"name": "fedbioacc", "momentum": 2.0, "rate": 1.0}, clients=clients)
    tiny_config(algorithm={"name": "fedbioacc", "momentum": 2.0, "rate": 0.5}, clients=clients)
