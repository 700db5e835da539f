"""What problems and methods declare, what holds for those that declare nothing, and what plug-ins must have."""

import inspect
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest
import torch
from tasks import ALGORITHM, TINY_PROBLEMS, federation, tiny_config, tiny_task
from torch import Tensor

from fedmbo_ray.core.cards import card_of
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.core.rng import stream
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.federation.rounds import Round
from fedmbo_ray.methods.algorithms import ALGORITHMS
from fedmbo_ray.methods.base import (
    Algorithm,
    HypergradientEstimator,
    Keeping,
    LowerSolver,
    State,
    check_weights,
    kept_at_first,
    own_figures,
)
from fedmbo_ray.methods.hypergradients import HYPERGRADIENTS
from fedmbo_ray.methods.lower import LOWER
from fedmbo_ray.methods.lower.scaffold import Scaffold
from fedmbo_ray.problems import PROBLEMS, makes_own_data
from fedmbo_ray.problems.base import Capabilities, capabilities, is_layered, is_modelled
from fedmbo_ray.problems.figures import metrics_of
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.loop import run


@pytest.mark.parametrize("name", TINY_PROBLEMS)
def test_shipped_problems_can_do_what_they_declare(name: str) -> None:
    task = tiny_task(name)
    problem, declared = task.problem, capabilities(task.problem)
    assert declared.layered == is_layered(problem) == name.startswith(("hyper", "ridge", "personal"))
    assert declared.model == is_modelled(problem) == (not name.startswith(("quadratic", "auc")))
    x, y = problem.init(stream(0))
    assert not declared.model or problem.model(x, y)(task.test.inputs[:3]).shape[0] == 3
    for member in ("upper_head", "lower_head", "upper_sees", "lower_sees"):
        assert not declared.layered or callable(getattr(problem, member)) or getattr(problem, member).loss
    assert capabilities(problem).stacks_all == name.startswith("quadratic")


class Silent:
    """A problem that declares nothing, and is not asked for more than its four methods."""

    def __init__(self, problem) -> None:
        self.init, self.upper, self.lower = problem.init, problem.upper, problem.lower
        self.metrics = partial(metrics_of, problem)


@pytest.mark.parametrize("name", ["quadratic", "hyper_cleaning"])
def test_a_problem_that_declares_nothing_gives_the_same_results(name: str) -> None:
    declared = tiny_task(name)
    assert capabilities(Silent(declared.problem)) == Capabilities()
    expected = final(declared)
    assert torch.allclose(final(declared._replace(problem=Silent(declared.problem))), expected, rtol=1e-9)


def final(task) -> Tensor:
    algorithm, fed = tiny_config().algorithm, federation(task, 6)
    state = algorithm.init(*task.problem.init(stream(0)), 20)
    for k in range(2):
        state = algorithm.round(fed.clients(stream(1, k), k), state)
    return state["x"]


def test_problems_with_and_without_data() -> None:
    assert [name for name in PROBLEMS if makes_own_data(name)] == ["quadratic"]
    assert not makes_own_data({"name": "hyper_cleaning"})


def test_a_method_that_declares_nothing_has_neither_figures_nor_weights_nor_card() -> None:
    @settings
    class Still:
        def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
            return {"x": x, "y": y}

        def round(self, clients, state: State) -> State:
            return dict(state)

    assert own_figures(Still(), {}, 3) == {}
    assert card_of(Still()) is None
    check_weights(Still(), Round(0, 10, 5))


def test_a_field_may_have_the_name_of_an_extension_and_a_method_must_declare_it() -> None:
    @settings
    class Fields:
        weights: Count = 3
        figures: Count = 4
        init: Count = 5

    assert own_figures(Fields(), {}, 3) == kept_at_first(Fields(), torch.zeros(1), torch.zeros(1), 2) == {}
    check_weights(Fields(), Round(0, 10, 5))

    class Undeclared:
        def figures(self, state: State, rounds: int) -> dict[str, float]:
            return {}

    with pytest.raises(ConfigError, match="has a method `figures`: declare it with the base class Reporting"):
        check_weights(Undeclared(), Round(0, 10, 5))


def test_figures_of_a_method_are_in_its_records() -> None:
    algorithm = {"name": "lower_draws", "lower": ALGORITHM["lower"]}
    *_, last = run(tiny_config(algorithm=algorithm, rounds=3))
    assert last["lower_move_sq"] > 0


def test_first_order_methods_say_so_on_their_cards() -> None:
    first_order = {name for name in ALGORITHMS if (card := card_of(ALGORITHMS[name])) is not None and card.first_order}
    assert first_order == {"memfbo", "f2sa", "single_level"}


@pytest.mark.parametrize(
    ("registry", "method"), [(LOWER, "solve"), (HYPERGRADIENTS, "estimate")], ids=["lower", "hypergradient"]
)
def test_all_of_a_kind_have_one_signature(registry: Registry, method: str) -> None:
    wanted = list(inspect.signature(getattr(registry.protocol, method)).parameters)
    for name in registry:
        assert list(inspect.signature(getattr(registry[name], method)).parameters) == wanted, name


def test_what_is_kept_is_what_was_declared() -> None:
    x, y = torch.zeros(3), torch.zeros(2)
    solver = Scaffold(steps=1, local_steps=1, step_size=0.1, batch_size=1)
    assert isinstance(solver, Keeping)
    assert {key: tuple(value.shape) for key, value in kept_at_first(solver, x, y, 7).items()} == {
        "c": (2,),
        "c_i": (7, 2),
    }
    assert kept_at_first(LOWER["fedavg"](steps=1, local_steps=1, step_size=0.1, batch_size=1), x, y, 7) == {}


def test_a_state_names_what_its_parts_keep() -> None:
    lower = {"name": "scaffold", "steps": 2, "local_steps": 2, "step_size": 0.1, "batch_size": 4}
    estimator = {"name": "linear_sgd", "steps": 2, "step_size": 0.1, "batch_size": 4}
    config = tiny_config(algorithm={**ALGORITHM, "lower": lower, "hypergradient": estimator})
    task = build_task(config)
    first = config.algorithm.init(*task.problem.init(stream(0)), 20)
    after = config.algorithm.round(federation(task, 6).clients(stream(1)), first)
    assert first.keys() == after.keys()
    assert after.keys() == {"x", "y", "smoothness", "lower.c", "lower.c_i", "hypergradient.v"}
    assert after["lower.c_i"].abs().sum() > 0
    assert after["hypergradient.v"].abs().sum() > 0


@settings
class Outdated:
    """Solver and estimator as they were before kept was an argument."""

    batch_size: Count = 4

    def solve(self, clients, x, y):
        return y

    def estimate(self, clients, x, y, smoothness):
        return x


@settings
class NoBatch:
    def estimate(self, clients, x, y, smoothness, kept):
        return x, kept


@settings
class Fine:
    batch_size: ClassVar[None] = None

    def solve(self, clients, x, y, kept, more=None):
        return y, kept

    def estimate(self, *everything):
        return everything[1], everything[-1]


@pytest.fixture
def plugged(monkeypatch) -> Callable[[type, type], type]:
    """Looks up a class of this file as if another package had given it as one of a kind."""

    def look_up(protocol: type, cls: type) -> type:
        registry = Registry("part", "parts", protocol, {})
        point = EntryPoint("toy", f"{__name__}:{cls.__name__}", registry.group)
        monkeypatch.setattr("fedmbo_ray.core.registry.entry_points", lambda group: [point])
        return registry["toy"]

    return look_up


@pytest.mark.parametrize(
    ("protocol", "cls", "rule"),
    [
        (LowerSolver, Outdated, "must have solve(clients, x, y, kept)"),
        (HypergradientEstimator, Outdated, "must have estimate(clients, x, y, smoothness, kept)"),
        (HypergradientEstimator, NoBatch, "must have batch_size"),
        (Algorithm, Fine, "must have init(x, y, num_clients), round(clients, state)"),
    ],
)
def test_a_plug_in_without_what_its_kind_asks_for_is_refused(plugged, protocol: type, cls: type, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plugged(protocol, cls)
    assert rule in str(caught.value)


def test_a_plug_in_may_have_more_than_its_kind_asks_for(plugged) -> None:
    assert plugged(LowerSolver, Fine) is Fine
    assert plugged(HypergradientEstimator, Fine) is Fine
