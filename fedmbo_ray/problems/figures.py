"""What is reported at a point: figures on test data and the two losses, in parts that any process can compute."""

from typing import cast

import torch
from torch import Tensor

from fedmbo_ray.data.batches import Batch
from fedmbo_ray.problems.base import Measured, Predicting, Problem, is_predicting
from fedmbo_ray.problems.oracles import Pair, Vectors, lowers, slots, uppers

PART = 1000  # samples in a part; fixed, so that all backends give the same bits


def count_parts(test: Batch) -> int:
    """How many parts test data have."""
    return max(1, -(-len(test.targets) // PART))


def part_of(test: Batch, number: int, device: torch.device) -> Batch:
    """A copy of one part of the test data; it may be written to."""
    return Batch(*(field[number * PART : (number + 1) * PART].to(device, copy=True) for field in test))


def metrics_of(problem: Problem, x: Tensor, y: Tensor, test: Batch | None) -> dict[str, float]:
    """The figures of any problem at (x, y), computed here; the bits of a run's records, if torch has one thread."""
    with torch.no_grad():
        if not is_predicting(problem):
            return cast("Measured", problem).metrics(x, y, test)
        assert test is not None
        parts = (part_of(test, number, test.inputs.device) for number in range(count_parts(test)))
        return problem.figures(x, y, torch.cat([predicted(problem, part, x, y) for part in parts]), test)


def predicted(problem: Predicting, part: Batch, x: Tensor, y: Tensor) -> Tensor:
    """A part's predictions."""
    return problem.predictions(x, y, part)


def summed_losses(problem: Problem, batches: Pair, x: Tensor, y: Tensor) -> Vectors:
    """The sums over the slots of a block of f_i(x, y; ξ) and of g_i(x, y; ζ); y has a row for each slot, or is shared.

    With a shared y, the samples of all slots are one batch.
    """
    validation, train = batches
    if y.dim() == 2:
        return uppers(problem, validation, x, y), lowers(problem, train, x, y)
    count = slots(train)
    return count * problem.upper(x, y, validation.merged()), count * problem.lower(x, y, train.merged())
