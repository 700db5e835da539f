"""Sampling, blocks, counting, and clients that drop out."""

from functools import partial

import numpy as np
import pytest
import torch
from tasks import federation, tiny_task

from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.batches import Draw, unstack
from fedmbo_ray.federation.availability import Unreliable
from fedmbo_ray.problems.oracles import grad_y_lower, hessian_yy

TRAIN = Draw("train", 3)


def test_with_replacement_clients_come_twice_and_without_they_do_not() -> None:
    task = tiny_task("quadratic")
    with_, without = federation(task, 20), federation(task, 20, replace=False)
    assert len(set(with_.clients(stream(0)).sample())) < 20
    assert sorted(without.clients(stream(0)).sample()) == list(range(20))


def test_results_do_not_depend_on_the_block_width_beyond_rounding() -> None:
    task = tiny_task("quadratic")
    x, y = task.problem.init(stream(0))
    results = []
    for width in (1, 3, 7, 64):
        clients = federation(task, 7, block_size=width).clients(stream(1))
        cohort = clients.sample()
        results.append(clients.mean(grad_y_lower, cohort, x, y, draw=TRAIN))
    for other in results[1:]:
        assert torch.allclose(results[0], other, rtol=1e-13)


def test_map_keeps_slot_order_and_mean_is_its_mean() -> None:
    task = tiny_task("quadratic")
    x, y = task.problem.init(stream(0))
    v = torch.arange(28, dtype=torch.float64).reshape(7, 4)
    fed = federation(task, 7, block_size=3)
    rows = fed.clients(stream(1)).map(hessian_yy, np.arange(7), x, y, each=v, draw=TRAIN)
    mean = fed.clients(stream(1)).mean(hessian_yy, np.arange(7), x, y, each=v, draw=TRAIN)
    one = federation(task, 7, block_size=1).clients(stream(1)).map(hessian_yy, np.arange(7), x, y, each=v, draw=TRAIN)
    assert torch.allclose(rows, one, rtol=1e-13)
    assert torch.allclose(rows.mean(0), mean, rtol=1e-13)


def local_steps(problem, batches, x, y, step_size):
    for batch in unstack(batches):
        y = y - step_size * grad_y_lower(problem, batch, x, y)
    return y


@pytest.mark.parametrize("name", ["quadratic", "hyper_representation"])
def test_kernels_may_take_several_batches(name: str) -> None:
    """With one batch, the mean of local steps is a step along the mean gradient; with more, it is not."""
    task = tiny_task(name)
    x, y = task.problem.init(stream(0))
    kernel = partial(local_steps, step_size=0.1)

    def after(count: int) -> torch.Tensor:
        clients = federation(task, 6).clients(stream(1))
        return clients.mean(kernel, clients.sample(), x, y, draw=Draw("train", 3, count=count))

    def gradient(problem, batches, x, y):
        return grad_y_lower(problem, next(unstack(batches)), x, y)

    clients = federation(task, 6).clients(stream(1))
    G = clients.mean(gradient, clients.sample(), x, y, draw=Draw("train", 3, count=1))
    assert torch.allclose(after(1), y - 0.1 * G, rtol=1e-12)
    assert not torch.allclose(after(3), after(1), rtol=1e-3)


def test_meter_counts_what_the_protocol_sends() -> None:
    task = tiny_task("quadratic")
    p = q = 4
    x, y = task.problem.init(stream(0))
    fed = federation(task, 6, block_size=4)
    clients = fed.clients(stream(1))
    clients.mean(grad_y_lower, clients.sample(), x, y, draw=TRAIN)
    assert fed.meter.state() == {
        "communications": 1,
        "samples": 6 * 3,
        "floats_up": 6 * q,
        "floats_down": 6 * (p + q),
        "dropped": 0,
        "waited": 0.0,
    }
    clients.map(hessian_yy, clients.sample(2), x, y, each=torch.zeros(2, q).double(), draw=(TRAIN, TRAIN)[0])
    assert fed.meter.floats_down == 6 * (p + q) + 2 * (p + 2 * q)
    assert fed.meter.floats_up == 8 * q


@pytest.mark.parametrize("replace", [True, False])
def test_resampled_cohorts_are_full_and_uniform(replace: bool) -> None:
    task, counts = tiny_task("quadratic"), np.zeros(20)
    fed = federation(task, 5, replace=replace, availability=Unreliable(dropout=0.5))
    for r in range(2000):
        cohort = fed.clients(stream(r)).sample()
        assert len(cohort) == 5
        assert replace or len(set(cohort)) == 5
        np.add.at(counts, cohort, 1)
    chi_square = ((counts - 500) ** 2 / 500).sum()
    assert chi_square < 19 + 5 * np.sqrt(38)
    assert abs(fed.meter.dropped - 10_000) < 4 * np.sqrt(20_000)  # geometric: mean 1, variance 2 a slot


def test_omitted_slots_are_missing_but_never_all_of_them() -> None:
    fed = federation(tiny_task("quadratic"), 3, availability=Unreliable(dropout=0.8, dropped="omit"))
    sizes = [len(fed.clients(stream(r)).sample()) for r in range(300)]
    assert set(sizes) == {1, 2, 3}
    assert fed.meter.dropped > 0


def test_stragglers_cost_time_and_the_late_ones_count_as_dropped() -> None:
    fed = federation(tiny_task("quadratic"), 4, availability=Unreliable(straggle=0.5, delay="exponential"))
    for r in range(500):
        fed.clients(stream(r)).sample()
    assert fed.meter.dropped == 0
    assert 0.5 * 500 < fed.meter.waited < 2 * 500  # mean of the slowest of four, half of them late: about 0.97 s
    strict = federation(tiny_task("quadratic"), 4, availability=Unreliable(straggle=0.5, delay="pareto", deadline=1.0))
    for r in range(500):
        strict.clients(stream(r)).sample()
    assert strict.meter.dropped > 0
    assert strict.meter.waited <= 500 * 1.0


def test_constant_delays_beyond_the_deadline_are_refused() -> None:
    with pytest.raises(ConfigError, match="delay_mean=2"):
        construct(Unreliable, {"straggle": 0.1, "delay": "constant", "delay_mean": 2.0, "deadline": 1.0})


def test_blocks_are_even_and_as_many_for_fewer_slots() -> None:
    clients = federation(tiny_task("quadratic"), 10, block_size=5).clients(stream(0))
    sizes = {slots: [cut.stop - cut.start for cut in clients.exchange._cuts(slots)] for slots in (1, 2, 6, 10, 11, 20)}
    assert sizes == {1: [1], 2: [1, 1], 6: [3, 3], 10: [5, 5], 11: [3, 4, 4], 20: [5, 5, 5, 5]}
