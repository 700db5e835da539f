"""What every registered solver, estimator and algorithm must keep. New entries are tested from the day they exist."""

from typing import Any

import numpy as np
import pytest
import torch
from tasks import ALGORITHM, federation, tiny_config, tiny_task

from fedmbo_ray.algorithms import ALGORITHMS
from fedmbo_ray.backends.ray_actors import RayActors
from fedmbo_ray.building import build_federation, build_task
from fedmbo_ray.hypergradients import HYPERGRADIENTS
from fedmbo_ray.lower import LOWER
from fedmbo_ray.rng import stream

# Parameters for each name; a name without an entry here fails the suite, so nothing goes untested.
LOWERS: dict[str, dict[str, Any]] = {
    "minibatch_sgd": {"steps": 2, "step_size": 0.2, "batch_size": 4},
    "accelerated_sgd": {"steps": 2, "strong_convexity": 0.001, "damping": 40, "batch_size": 4},
    "fedavg": {"steps": 2, "local_steps": 3, "step_size": 0.1, "batch_size": 4},
    "fedsvrg": {"steps": 2, "local_steps": 3, "step_size": 0.1, "batch_size": 4},
    "fedlin": {"steps": 2, "local_steps": 3, "fewest_local_steps": 1, "step_size": 0.2},
}
ESTIMATORS: dict[str, dict[str, Any]] = {
    "phe": {"terms": 3, "batch_size": 4},
    "phe_sum": {"terms": 3, "batch_size": 4},
    "ihgp": {"terms": 3, "batch_size": 4},
    "ihgp_sum": {"terms": 3, "batch_size": 4},
    "local_neumann": {"terms": 3, "batch_size": 4},
    "exact": {"tolerance": 1e-6},
}
WHOLE: dict[str, dict[str, Any]] = {"double_loop": {key: value for key, value in ALGORITHM.items() if key != "name"}}


def parameters(kind: str, name: str) -> dict[str, Any]:
    known = {"WHOLE": WHOLE, "LOWERS": LOWERS, "ESTIMATORS": ESTIMATORS}[kind]
    assert name in known, f"{name!r} is new: add parameters to test it with to {kind} in {__file__}"
    return {"name": name, **known[name]}


def algorithms() -> dict[str, dict[str, Any]]:
    """Every algorithm, and every solver and estimator inside the double loop."""
    found = {name: parameters("WHOLE", name) for name in ALGORITHMS}
    found |= {f"lower {name}": {**ALGORITHM, "lower": parameters("LOWERS", name)} for name in LOWER}
    for name in HYPERGRADIENTS:
        found[f"hypergradient {name}"] = {**ALGORITHM, "hypergradient": parameters("ESTIMATORS", name)}
    found["smoothness auto"] = {**ALGORITHM, "smoothness": {"name": "auto", "every": 2, "batch_size": 4}}
    return found


every_algorithm = pytest.mark.parametrize("algorithm", algorithms().values(), ids=algorithms().keys())


def final_state(config, backend=None, rounds: int = 3) -> dict[str, torch.Tensor]:
    task = build_task(config)
    fed = build_federation(config, task, backend) if backend else None
    fed = fed or federation(task, config.clients.cohort_size, block_size=config.clients.block_size)
    state = config.algorithm.init(*task.problem.init(stream(config.seed, "init")), task.data.num_clients)
    for k in range(rounds):
        state = config.algorithm.round(fed.clients(stream(config.seed, "round", k), k), state)
    return state


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key].nan_to_num(), b[key].nan_to_num()) for key in a)


@every_algorithm
@pytest.mark.parametrize("problem", ["quadratic", "hyper_representation", "hyper_cleaning"])
def test_same_seed_same_bits_and_nothing_global_touched(algorithm: dict[str, Any], problem: str) -> None:
    config = tiny_config(problem, algorithm=algorithm)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = final_state(config)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    assert same(first, final_state(config))
    other = final_state(tiny_config(problem, algorithm=algorithm, seed=1))
    assert not torch.equal(first["x"], other["x"])


@pytest.fixture(scope="module")
def pools(cluster):
    """Ray backends of one and of three actors for the two tasks of the next test."""
    made = {
        (problem, actors): RayActors(*tiny_task(problem)[:2], actors, cpus=0.5)
        for problem in ("quadratic", "hyper_representation")
        for actors in (1, 3)
    }
    yield made
    for pool in made.values():
        pool.close()


@every_algorithm
@pytest.mark.parametrize("problem", ["quadratic", "hyper_representation"])
def test_ray_gives_the_bits_of_in_process(algorithm: dict[str, Any], problem: str, pools) -> None:
    config = tiny_config(problem, algorithm=algorithm)
    here = final_state(config)
    for actors in (1, 3):
        assert same(here, final_state(config, pools[problem, actors]))


@every_algorithm
def test_arguments_are_not_written_to_and_dtype_and_shape_are_kept(algorithm: dict[str, Any]) -> None:
    for dtype in ("float32", "float64"):
        problem = {"name": "hyper_representation", "backbone": {"name": "mlp", "width": 4}, "dtype": dtype}
        config = tiny_config("hyper_representation", algorithm=algorithm, problem=problem)
        task = build_task(config)
        state = config.algorithm.init(*task.problem.init(stream(0)), task.data.num_clients)
        before = {key: value.clone() for key, value in state.items()}
        after = config.algorithm.round(federation(task, 4).clients(stream(1)), state)
        assert same(state, before)
        for key, value in after.items():
            assert value.shape == before[key].shape
            assert value.dtype == before[key].dtype == getattr(torch, dtype)


@every_algorithm
@pytest.mark.parametrize(("cohort_size", "replace"), [(1, True), (20, False), (20, True), (50, True)])
def test_any_cohort(algorithm: dict[str, Any], cohort_size: int, replace: bool) -> None:
    clients = {"num_clients": 20, "cohort_size": cohort_size, "replace": replace}
    config = tiny_config("quadratic", algorithm=algorithm, clients=clients)
    state = final_state(config, rounds=2)
    assert state["x"].isfinite().all()


@every_algorithm
@pytest.mark.parametrize("dropped", ["resample", "omit"])
def test_dropouts_are_survived(algorithm: dict[str, Any], dropped: str) -> None:
    availability = {"dropout": 0.6, "straggle": 0.3, "dropped": dropped}
    clients = {"num_clients": 20, "cohort_size": 4, "availability": availability}
    config = tiny_config("quadratic", algorithm=algorithm, clients=clients)
    task = build_task(config)
    fed = build_federation(config, task, federation(task, 4).backend)
    state = config.algorithm.init(*task.problem.init(stream(0)), task.data.num_clients)
    for k in range(5):
        state = config.algorithm.round(fed.clients(stream(k), k), state)
    assert state["x"].isfinite().all()
    assert fed.meter.dropped > 0


# What one call sends, as (communications, floats down, floats up) per participating client; τ does not matter.
p, q, T, N = 3, 5, 2, 3
LOWER_COSTS = {
    "minibatch_sgd": (T, T * (p + q), T * q),
    "accelerated_sgd": (T, T * (p + q), T * q),
    "fedavg": (T, T * (p + q), T * q),
    "fedsvrg": (2 * T, T * (p + 2 * q), T * 2 * q),
    "fedlin": (2 * T, T * (p + 2 * q + 1), T * 2 * q),
}


def small_quadratic():
    config = tiny_config("quadratic", problem={"name": "quadratic", "upper_dim": p, "lower_dim": q})
    return build_task(config)


@pytest.mark.parametrize("name", LOWER)
def test_a_lower_solver_sends_what_its_formula_says(name: str) -> None:
    task, n = small_quadratic(), 6
    fed = federation(task, n, block_size=4)
    x, y = task.problem.init(stream(0))
    LOWER[name](**LOWERS[name]).solve(fed.clients(stream(1)), x, y)
    meter = fed.meter
    assert (meter.communications, meter.floats_down / n, meter.floats_up / n) == LOWER_COSTS[name]


@pytest.mark.parametrize("name", HYPERGRADIENTS)
def test_an_estimator_sends_what_its_formula_says(name: str) -> None:
    """Downwards x and y to every new cohort and a vector of dimension q where there is one; upwards q, at last p."""
    task, n = small_quadratic(), 6
    fed = federation(task, n, block_size=4)
    x, y = task.problem.init(stream(0))
    estimator = HYPERGRADIENTS[name](**ESTIMATORS[name])
    estimator.estimate(fed.clients(stream(1)), x, y, torch.tensor(1.0, dtype=torch.float64))
    meter, m = fed.meter, task.data.num_clients
    hops = meter.communications - 2  # Neumann steps, or iterations of conjugate gradients
    if name in ("ihgp", "ihgp_sum"):
        assert hops == N - 1 if name == "ihgp_sum" else 0 <= hops <= N - 1
        assert meter.floats_down == n * ((p + q) + (hops + 1) * (p + 2 * q))
        assert meter.floats_up == n * ((hops + 1) * q + p)
    elif name == "local_neumann":
        assert (meter.communications, meter.floats_down, meter.floats_up) == (1, n * (p + q + 1), n * p)
    elif name == "exact":
        assert meter.floats_down == m * ((p + q) + (hops + 1) * q)
        assert meter.floats_up == m * ((hops + 1) * q + p)
    else:
        products = (meter.floats_up - n * q - n * p) // q  # of all columns
        assert meter.floats_down == n * (p + q) + products * (p + 2 * q) + n * (p + 2 * q)
        assert products == n * (N - 1) if name == "phe_sum" else 0 <= products <= n * (N - 1)


def test_a_fixed_cohort_is_told_x_and_y_once() -> None:
    task, n = small_quadratic(), 6
    fed = federation(task, n)
    x, y = task.problem.init(stream(0))
    estimator = HYPERGRADIENTS["ihgp"](terms=N, batch_size=1, cohort="fixed")
    estimator.estimate(fed.clients(stream(4)), x, y, torch.tensor(1.0, dtype=torch.float64))
    hops = fed.meter.communications - 2
    assert hops > 0
    assert fed.meter.floats_down == n * (p + q + (hops + 1) * q)
