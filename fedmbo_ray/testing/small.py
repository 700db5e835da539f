"""Small runs in this process, for the checks."""

from collections.abc import Mapping

import numpy as np
import torch

from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.cards import card_of
from fedmbo_ray.core.components import construct, parts_of, required_of
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.core.rng import stream
from fedmbo_ray.federation.clients import Federation
from fedmbo_ray.methods.algorithms import ALGORITHMS
from fedmbo_ray.methods.base import State
from fedmbo_ray.runs.build import build_federation, build_task

Settings = Mapping[str, object]  # of a component or a section, as in a config

# Values for parameters without a default.
TYPICAL: Settings = {"steps": 2, "local_steps": 3, "terms": 3, "batch_size": 4, "step_size": 0.1}
# The double loop around the tested part; the cost of its other parts is not random.
AROUND: Settings = {
    "name": "double_loop",
    "step_size": 0.05,
    "smoothness": 20,
    "lower": {"name": "minibatch_sgd", "steps": 2, "step_size": 0.2, "batch_size": 4},
    "hypergradient": {"name": "phe_sum", "terms": 2, "batch_size": 4},
}
DIGITS: Settings = {"name": "digits", "partition": {"name": "iid"}}


def require(holds: bool, said: str) -> None:
    if not holds:
        raise AssertionError(said)


def component(registry: Registry, name: str, parameters: Settings) -> dict[str, object]:
    """A component as in a config, with a value for every required parameter."""
    missing = [key for key in required_of(registry[name]) if key not in parameters]
    unknown = [key for key in missing if key not in TYPICAL]
    require(not unknown, f"to check {name!r}, give a value for {', '.join(unknown)}")
    return {"name": name, **{key: TYPICAL[key] for key in missing}, **parameters}


def small_config(algorithm: Settings, **sections: Settings) -> RunConfig:
    """The algorithm on a small problem, with as many clients as it asks for."""
    built: object = construct(
        ALGORITHMS[str(algorithm["name"])], {key: algorithm[key] for key in algorithm if key != "name"}
    )
    needs = participation(built)
    m = 1 if "one" in needs else 20
    clients = {"num_clients": m, "cohort_size": m if needs & {"one", "full"} else 6, "block_size": 4}
    config: RunConfig = construct(RunConfig, {"rounds": 6, "clients": clients, "algorithm": algorithm, **sections})
    return config


def participation(algorithm: object) -> set[str]:
    """Which clients an algorithm and its parts need, as their cards say (`participation`)."""
    cards = [card_of(part) for _, part in parts_of(algorithm)]
    return {card.participation for card in cards if card is not None}


def start(config: RunConfig) -> tuple[Federation, State]:
    """The clients in this process, and the state of round 0."""
    task = build_task(config)
    x, y = task.problem.init(stream(config.seed, "init"))
    federation = build_federation(config, task, InProcess(task))
    return federation, config.algorithm.init(x, y, task.data.num_clients)


def after(config: RunConfig, clients: Settings | None = None, seed: int = 0) -> State:
    """The state after two rounds; `seed` decides what rounds draw, but not the data or the starting point."""
    plain = config.resolved()
    changed: RunConfig = construct(RunConfig, {**plain, "clients": {**plain["clients"], **(clients or {})}})
    federation, state = start(changed)
    for k in range(2):
        state = changed.algorithm.round(federation.clients(stream(seed, "round", k), k), state)
    return state


def same(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key].nan_to_num(), b[key].nan_to_num()) for key in a)


def same_seed_same_bits(config: RunConfig) -> None:
    before = global_states()
    first, again, other = after(config), after(config), after(config, seed=1)
    require(same(first, again), "the same seed must give the same bits")
    require(not same(first, other), "another seed must give other bits: rounds must draw from clients.rng alone")
    require(global_states() == before, "the global random states of torch and numpy must not be used")


def global_states() -> tuple[bytes, bytes, int]:
    """The global random states of torch and of numpy."""
    numpy = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    return torch.get_rng_state().numpy().tobytes(), numpy["key"].tobytes(), numpy["pos"]
