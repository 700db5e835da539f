"""Checks for packages that extend fedmbo_ray: whether a component keeps the contract that all components keep.

A check takes the name of a component as in a config, so its package must be installed, and its parameters as keywords.
It runs in this process, needs no Ray and takes seconds. If a rule is broken, it raises an AssertionError that names it.

Example:
    >>> check_lower_solver("fedavg", local_steps=2)
    >>> check_partition("dirichlet", alpha=1.0)
"""

from fedmbo_ray.testing.methods import check_algorithm as check_algorithm
from fedmbo_ray.testing.methods import check_estimator as check_estimator
from fedmbo_ray.testing.methods import check_lower_solver as check_lower_solver
from fedmbo_ray.testing.methods import check_outer_step as check_outer_step
from fedmbo_ray.testing.problems import check_learns as check_learns
from fedmbo_ray.testing.problems import check_partition as check_partition
from fedmbo_ray.testing.problems import check_problem as check_problem
