"""What every registered solver, estimator and algorithm must keep. New entries are tested from the day they exist."""

from typing import Any

import numpy as np
import pytest
import torch
from tasks import ALGORITHM, TINY_PROBLEMS, federation, tiny_config

from fedmbo_ray.core.cards import Card, Cost
from fedmbo_ray.core.components import Component, construct, parts_of, required_of
from fedmbo_ray.core.rng import stream
from fedmbo_ray.federation.exchange import Exchange
from fedmbo_ray.methods.algorithms import ALGORITHMS
from fedmbo_ray.methods.base import kept_at_first
from fedmbo_ray.methods.curvature import SMOOTHNESS
from fedmbo_ray.methods.hypergradients import HYPERGRADIENTS
from fedmbo_ray.methods.lower import LOWER
from fedmbo_ray.methods.outer import OUTER
from fedmbo_ray.methods.schedules import SCHEDULES
from fedmbo_ray.problems import PROBLEMS
from fedmbo_ray.problems.figures import metrics_of
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.loop import Loop, in_process
from fedmbo_ray.testing.costs import formulas, measured

# Values of the parameters that a component may require, and where a component needs others.
TYPICAL = {"steps": 2, "local_steps": 3, "terms": 3, "batch_size": 4, "step_size": 0.1}
SPECIAL: dict[str, dict[str, Any]] = {
    "accelerated_sgd": {"strong_convexity": 0.001, "damping": 40},
    "fedlin": {"local_steps": {"fewest": 1, "most": 3}},
    "proxskip": {"steps": 6, "probability": 0.4},
    "linear_sgd": {"steps": 4, "step_size": 0.02},
    "exact": {"tolerance": 1e-6},
    "constant": {"value": 0.01},
    "sqrt_speedup": {"scale": 0.05},
    "decay": {"initial": 0.05},
    "given": {"value": 20},
    "auto": {"every": 2, "batch_size": 4},
}
REGISTRIES = {
    "lower": LOWER,
    "hypergradient": HYPERGRADIENTS,
    "outer": OUTER,
    "step_size": SCHEDULES,
    "smoothness": SMOOTHNESS,
}
# A method is tested as it comes, with less to do in a round.
SMALLER = {"batch_size": 4, "terms": 3, "steps": 2, "local_steps": 2}


def parameters(kind: str, name: str) -> dict[str, Any]:
    """Those to test a component with; one that is required and known nowhere fails the suite: nothing goes untested."""
    values = {key: TYPICAL.get(key) for key in required_of(REGISTRIES[kind][name])} | SPECIAL.get(name, {})
    unknown = [key for key, value in values.items() if value is None]
    assert not unknown, f"{name!r} is new: say in SPECIAL in {__file__} which {', '.join(unknown)} to test it with"
    return values


def smaller(values: dict[str, Any]) -> dict[str, Any]:
    """A dumped component with less to do, and without a measured ℓ."""
    changed = {
        key: smaller(value) if isinstance(value, dict) else SMALLER.get(key, value) for key, value in values.items()
    }
    if isinstance(changed.get("hypergradient"), dict) and "steps" in changed["hypergradient"]:
        changed["hypergradient"]["steps"] = 4
    return {**changed, "smoothness": 20} if "smoothness" in changed else changed


def algorithm(name: str) -> dict[str, Any]:
    """A method, or the double loop with one of its parts replaced ("lower fedavg"), as a config has it."""
    if " " in name:
        kind, part = name.split()
        return {**ALGORITHM, kind: {"name": part, **parameters(kind, part)}}
    assert not required_of(ALGORITHMS[name]), f"{name} must have a default for every parameter: it is a whole method"
    return smaller(Component(ALGORITHMS).dump(ALGORITHMS[name]()))


METHODS = [name for name in ALGORITHMS if name != "double_loop"]
EVERY = METHODS + [f"{kind} {name}" for kind in REGISTRIES for name in REGISTRIES[kind]]
every_algorithm = pytest.mark.parametrize("name", EVERY)


def participation(algorithm: Any) -> str:
    """What the most demanding part asks for."""
    needs = {part.card.participation for _, part in parts_of(algorithm) if hasattr(part, "card")}
    return next((need for need in ("one", "full") if need in needs), "partial")


def config_for(name: str, problem: str, m: int = 20, n: int = 6, **changes: Any) -> Any:
    """The algorithm on a tiny problem, with as many clients as it needs; `changes` are of the federation's."""
    fields = algorithm(name)
    need = participation(construct(ALGORITHMS[fields["name"]], {key: fields[key] for key in fields if key != "name"}))
    m = 1 if need == "one" else m
    n = m if need in ("one", "full") else n
    clients = {"num_clients": m, "cohort_size": n, "block_size": 4, **changes}
    more = {"data": {"name": "digits", "partition": "iid"}} if m == 1 and problem != "quadratic" else {}
    return tiny_config(problem, algorithm=algorithm(name), clients=clients, **more)


def final_state(config: Any, backend: Any = None, rounds: int = 2, seed: int = 0) -> dict[str, torch.Tensor]:
    """After some rounds, whose randomness comes from `seed`; the task and the starting point do not."""
    loop = Loop(config, make_backend=lambda task: backend or in_process(task))
    loop.config = config.model_copy(update={"seed": seed})
    for _ in range(rounds):
        loop.step()
    return loop.state


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key].nan_to_num(), b[key].nan_to_num()) for key in a)


@pytest.mark.parametrize("name", ["fedmbo", "memfbo"])  # with second derivatives, and without
@pytest.mark.parametrize("problem", TINY_PROBLEMS)
def test_problems_give_the_same_bits_however_clients_are_cut_into_blocks(problem: str, name: str) -> None:
    config = config_for(name, problem)
    alone, together = (final_state(config_for(name, problem, block_size=size)) for size in (1, 6))
    assert same(final_state(config), final_state(config))
    assert all(torch.allclose(alone[key], together[key], rtol=1e-9, atol=1e-12) for key in alone)
    task = build_task(config)
    figures = metrics_of(task.problem, alone["x"], alone["y"], task.test)
    assert figures
    assert all(np.isfinite(value) for value in figures.values())


def test_every_registered_problem_is_among_the_tiny_ones() -> None:
    assert {fields["problem"]["name"] for fields in TINY_PROBLEMS.values()} == set(PROBLEMS) - set(PROBLEMS.plugins)


# Methods on a real problem, where they run with several clients; parts, and the rest, on the quadratic.
ALONE = {name for name in METHODS if getattr(ALGORITHMS[name], "card", Card("", "")).participation == "one"}
PERSONAL = {name for name in METHODS if getattr(ALGORITHMS[name], "card", Card("", "")).personal}
REAL = {name: "personal_heads" if name in PERSONAL else "hyper_representation" for name in METHODS if name not in ALONE}
ONCE = [(name, REAL.get(name, "quadratic")) for name in EVERY]
MORE = [("lower fedlin", "hyper_representation"), ("fedmbo", "hyper_cleaning"), ("memfbo", "hyper_cleaning")]


@pytest.mark.parametrize(("name", "problem"), ONCE + MORE)
def test_same_seed_same_bits_and_nothing_global_touched(name: str, problem: str) -> None:
    config = config_for(name, problem)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = final_state(config)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    assert same(first, final_state(config))
    assert not same(first, final_state(config, seed=1))


@every_algorithm
def test_arguments_are_not_written_to_and_dtype_and_shape_are_kept(name: str) -> None:
    for dtype in ("float32", "float64"):
        config = config_for(name, "personal_heads", m=4, n=4)
        problem = {"name": "personal_heads", "backbone": {"name": "mlp", "width": 4}, "dtype": dtype}
        config = tiny_config(
            "personal_heads", algorithm=algorithm(name), clients=config.clients, problem=problem, data=config.data
        )
        task = build_task(config)
        m = task.data.num_clients
        state = config.algorithm.init(*task.problem.init(stream(0)), m)
        before = {key: value.clone() for key, value in state.items()}
        after = config.algorithm.round(federation(task, m).clients(stream(1)), state)
        assert same(state, before)
        assert after.keys() == before.keys()
        for key, value in after.items():
            assert value.shape == before[key].shape
            assert value.dtype == before[key].dtype == getattr(torch, dtype)


@every_algorithm
@pytest.mark.parametrize(
    ("m", "n", "replace"), [(20, 1, True), (20, 20, False), (20, 20, True), (20, 50, True), (1, 1, False)]
)
def test_any_cohort(name: str, m: int, n: int, replace: bool) -> None:
    state = final_state(config_for(name, "quadratic", m, n, replace=replace))
    assert state["x"].isfinite().all()


@every_algorithm
@pytest.mark.parametrize("dropped", ["resample", "omit"])
def test_dropouts_are_survived(name: str, dropped: str) -> None:
    availability = {"dropout": 0.6, "straggle": 0.3, "dropped": dropped}
    config = config_for(name, "quadratic", 20, 4, availability=availability)
    loop = Loop(config)
    for _ in range(5):
        loop.step()
    assert loop.state["x"].isfinite().all()
    assert loop.meter.dropped > 0


# Costs: what was measured must be what the card says, for some value of its random letters.
p, q = 3, 5
ELL = torch.tensor(1.0, dtype=torch.float64)


def small_quadratic(m: int):
    problem = {"name": "quadratic", "upper_dim": p, "lower_dim": q}
    return build_task(tiny_config("quadratic", problem=problem, clients={"num_clients": m, "cohort_size": min(m, 6)}))


def possible(cost: Cost, letters: dict[str, int], n: int) -> set[tuple[float, ...]]:
    """What a cost may come to: communications and floats down and up, over all values of its random letters."""
    return formulas(cost, {**letters, "p": p, "q": q, "n": n})


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("lower", "hypergradient", "outer") for name in REGISTRIES[kind]]
)
def test_a_component_sends_what_its_card_says(kind: str, name: str) -> None:
    component = construct(REGISTRIES[kind][name], parameters(kind, name))
    m, n = (6, 6) if component.card.participation == "full" else (20, 6)
    task = small_quadratic(m)
    fed = federation(task, n, block_size=4)
    x, y = task.problem.init(stream(0))
    kept = kept_at_first(component, x, y, m)
    more = {"lower": (kept,), "hypergradient": (ELL, kept), "outer": (torch.ones_like(x), 0.1)}
    arguments = (fed.clients(stream(1)), x, y, *more[kind])
    run = {"lower": "solve", "hypergradient": "estimate", "outer": "step"}[kind]
    letters = {"T": getattr(component, "steps", 0), "N": getattr(component, "terms", 0), "m": m}
    letters["Q"] = letters["T"]
    seen = measured(fed, lambda: getattr(component, run)(*arguments))
    assert seen in possible(component.card.cost, letters, n)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_sends_in_a_round_what_its_card_says(name: str) -> None:
    config = config_for(name, "quadratic", 20, 6)
    m, n, method = config.clients.num_clients, config.clients.cohort_size, config.algorithm
    task = small_quadratic(m)
    fed = federation(task, n, block_size=4)
    state = method.init(*task.problem.init(stream(0)), m)
    state = method.round(fed.clients(stream(1), 0), state)
    letters = {"N": getattr(getattr(method, "hypergradient", method), "terms", 0), "m": m}
    letters["T"] = getattr(getattr(method, "lower", method), "steps", 0)
    letters["Q"] = getattr(getattr(method, "hypergradient", None), "steps", 0)
    for k in (1, 2, 3):
        seen = measured(fed, lambda k=k: method.round(fed.clients(stream(2, k), k), state))
        assert seen in possible(method.card.cost, letters, n)


def test_a_cost_that_is_off_by_one_float_is_noticed() -> None:
    wrong = Cost("T", "T*(p + q) + 1", "T*q")
    task = small_quadratic(20)
    fed = federation(task, 6)
    solver = construct(LOWER["minibatch_sgd"], parameters("lower", "minibatch_sgd"))
    seen = measured(fed, lambda: solver.solve(fed.clients(stream(1)), *task.problem.init(stream(0)), {}))
    assert seen in possible(solver.card.cost, {"T": 2, "N": 0, "m": 20}, 6)
    assert seen not in possible(wrong, {"T": 2, "N": 0, "m": 20}, 6)


def test_one_cohort_for_all_communications_is_told_x_and_y_once() -> None:
    task, n, terms = small_quadratic(20), 6, 3
    fed = federation(task, n)
    x, y = task.problem.init(stream(0))
    clients = fed.clients(stream(4))
    clients = clients.with_one_cohort(clients.sample())
    HYPERGRADIENTS["ihgp"](terms=terms, batch_size=1).estimate(clients, x, y, ELL, {})
    hops = fed.meter.communications - 2
    assert hops > 0
    assert fed.meter.floats_down == n * (p + q + (hops + 1) * q)


NEEDS_ALL = [name for name in METHODS if ALGORITHMS[name].card.participation == "full"]


@pytest.mark.parametrize("name", NEEDS_ALL)
def test_a_method_that_needs_everyone_asks_everyone(name: str, monkeypatch) -> None:
    """In every communication, also with `clients.replace`; ℓ is measured by a sample."""
    config = config_for(name, "quadratic", 20, 6)
    asked = []
    communicate = Exchange.communicate
    monkeypatch.setattr(
        Exchange,
        "communicate",
        lambda self, job, cohort, *rest: asked.append(cohort) or communicate(self, job, cohort, *rest),
    )
    final_state(config)
    assert asked
    assert all(sorted(cohort) == list(range(20)) for cohort in asked)


def test_every_entry_has_a_card_and_reconstructed_ones_say_so() -> None:
    from fedmbo_ray.core.cards import RECONSTRUCTED
    from fedmbo_ray.data.partitions import PARTITIONS

    for registry in (LOWER, HYPERGRADIENTS, OUTER, PROBLEMS, PARTITIONS, ALGORITHMS):
        for name in registry:
            if name == "double_loop" or name in registry.plugins:
                continue
            cls = registry[name]
            says_so = "Reconstructed; not checked against the paper's text." in " ".join(cls.__doc__.split())
            assert says_so == (cls.card.status == RECONSTRUCTED), name
