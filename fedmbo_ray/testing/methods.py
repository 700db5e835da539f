"""The contract of methods and of their parts."""

import torch

from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.components import field_names
from fedmbo_ray.core.rng import stream
from fedmbo_ray.methods.algorithms import ALGORITHMS
from fedmbo_ray.methods.hypergradients import HYPERGRADIENTS
from fedmbo_ray.methods.lower import LOWER
from fedmbo_ray.methods.outer import OUTER
from fedmbo_ray.testing.costs import P, Q, sends_what_its_card_says
from fedmbo_ray.testing.small import (
    AROUND,
    DIGITS,
    Settings,
    after,
    component,
    participation,
    require,
    same,
    same_seed_same_bits,
    small_config,
    start,
)


def check_lower_solver(name: str, **parameters: object) -> None:
    """Check a lower solver inside a double loop, by the rules of `check_algorithm`.

    Args:
        name: its name in a config; its package must be installed.
        parameters: its parameters; those without a default get a typical value.

    Raises:
        AssertionError: it breaks a rule; the message says which.

    Example:
        >>> check_lower_solver("fedavg", local_steps=2)
    """
    _check({**AROUND, "lower": component(LOWER, name, parameters)})


def check_estimator(name: str, **parameters: object) -> None:
    """Check a hypergradient estimator inside a double loop, by the rules of `check_algorithm`.

    Args:
        name: its name in a config; its package must be installed.
        parameters: its parameters; those without a default get a typical value.

    Raises:
        AssertionError: it breaks a rule; the message says which.

    Example:
        >>> check_estimator("phe", terms=2)
    """
    _check({**AROUND, "hypergradient": component(HYPERGRADIENTS, name, parameters)})


def check_outer_step(name: str, **parameters: object) -> None:
    """Check an outer step inside a double loop, by the rules of `check_algorithm`.

    Args:
        name: its name in a config; its package must be installed.
        parameters: its parameters; those without a default get a typical value.

    Raises:
        AssertionError: it breaks a rule; the message says which.

    Example:
        >>> check_outer_step("fedout")
    """
    _check({**AROUND, "outer": component(OUTER, name, parameters)})


def check_algorithm(name: str, **parameters: object) -> None:
    """Check a whole method.

    Args:
        name: its name in a config; its package must be installed.
        parameters: its parameters; those without a default get a typical value.

    Raises:
        AssertionError: if the same seed gives different bits or two seeds give the same bits; if a global random state
            is used; if a round writes to its state or changes shapes or dtype; if x or y become infinite with another
            cohort size or with dropouts; or if the method sends more or less than its card says.

    Example:
        >>> check_algorithm("fedmbo", step_size=0.01)
    """
    given = {"smoothness": 20} if "smoothness" in field_names(ALGORITHMS[name]) else {}  # cards leave out measuring it
    _check(component(ALGORITHMS, name, {**given, **parameters}))


def _check(algorithm: Settings) -> None:
    config = small_config(algorithm, problem={"name": "quadratic", "upper_dim": P, "lower_dim": Q})
    same_seed_same_bits(config)
    _survives(config)
    sends_what_its_card_says(config)
    for dtype in ("float32", "float64"):
        small = {"name": "personal_heads", "backbone": {"name": "mlp", "width": 4}, "dtype": dtype}
        _keeps_its_arguments(small_config(algorithm, problem=small, data=DIGITS), getattr(torch, dtype))


def _survives(config: RunConfig) -> None:
    """Check that x and y stay finite with other cohort sizes and with clients that drop out."""
    sizes: list[Settings] = [{"cohort_size": 1}, {"cohort_size": 20, "replace": False}, {"cohort_size": 30}]
    some = not participation(config.algorithm) & {"full", "one"}
    for change in (*(sizes if some else ()), {"availability": {"dropout": 0.5, "dropped": "omit"}}):
        state = after(config, change)
        finite = bool(state["x"].isfinite().all() and state["y"].isfinite().all())
        require(finite, f"x and y must stay finite, but did not with clients: {change}")


def _keeps_its_arguments(config: RunConfig, dtype: torch.dtype) -> None:
    federation, state = start(config)
    before = {key: value.clone() for key, value in state.items()}
    new = config.algorithm.round(federation.clients(stream(1), 0), state)
    require(same(state, before), "a state that is given to round must not be written to")
    require(new.keys() == before.keys(), f"round must return {', '.join(before)}, but returned {', '.join(new)}")
    for key, value in new.items():
        shape, old = tuple(before[key].shape), before[key].dtype
        kept = tuple(value.shape) == shape and value.dtype == old == dtype
        require(kept, f"{key} must be {dtype} of shape {shape}, but is {value.dtype} of shape {tuple(value.shape)}")
