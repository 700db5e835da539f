"""Examples in docstrings of what users call or subclass give what they show."""

import doctest
from importlib import import_module

import pytest

MODULES = {
    "core.cards": 2,
    "core.rng": 1,
    "core.settings": 1,
    "data.batches": 1,
    "data.derived": 2,
    "federation.clients": 1,
    "federation.relay": 1,
    "methods.schedules": 1,
    "problems.base": 1,
    "testing.methods": 4,
    "testing.problems": 3,
}


@pytest.mark.parametrize("name", MODULES)
def test_of_module(name: str) -> None:
    module = import_module(f"fedmbo_ray.{name}")
    with_examples = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert len(with_examples) == MODULES[name]
    assert doctest.testmod(module).failed == 0
