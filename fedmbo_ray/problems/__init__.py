"""Bilevel problems by the name a config gives them."""

from fedmbo_ray.problems.hyper_cleaning import HyperCleaning
from fedmbo_ray.problems.hyper_representation import HyperRepresentation
from fedmbo_ray.problems.quadratic import Quadratic
from fedmbo_ray.registry import Registry

PROBLEMS = Registry(
    "problem",
    {"quadratic": Quadratic, "hyper_representation": HyperRepresentation, "hyper_cleaning": HyperCleaning},
)
