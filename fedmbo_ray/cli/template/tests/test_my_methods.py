"""The components of my_methods keep the contract of fedmbo_ray, and learn. The package must be installed."""

from fedmbo_ray.testing import (
    check_algorithm,
    check_estimator,
    check_learns,
    check_lower_solver,
    check_outer_step,
    check_partition,
    check_problem,
)


def test_the_lower_solver_keeps_the_contract() -> None:
    check_lower_solver("my_methods_heavy_ball", momentum=0.3)


def test_the_estimator_keeps_the_contract() -> None:
    check_estimator("my_methods_one_term")


def test_the_outer_step_keeps_the_contract() -> None:
    check_outer_step("my_methods_signed")


def test_the_method_keeps_the_contract() -> None:
    check_algorithm("my_methods_local_soba")


def test_the_problem_keeps_the_contract() -> None:
    check_problem("my_methods_pixel_ridge")


def test_the_partition_keeps_the_contract() -> None:
    check_partition("my_methods_halves")


def test_the_parts_learn_together() -> None:
    lower = ("algorithm.lower=my_methods_heavy_ball", "algorithm.lower.momentum=0.3")
    upper = ("algorithm.hypergradient=my_methods_one_term", "algorithm.outer=my_methods_signed")
    run = check_learns(*lower, *upper, "algorithm.step_size=0.001", "data.partition=my_methods_halves")
    assert run.records["test_accuracy"].iloc[-1] > 0.8


def test_the_method_learns_the_problem() -> None:
    run = check_learns("algorithm=my_methods_local_soba", "problem=my_methods_pixel_ridge")
    assert run.records["test_accuracy"].iloc[-1] > 0.8
