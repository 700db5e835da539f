"""Oracles against dense derivatives (float64), and what a block computes against client after client."""

from functools import partial
from inspect import signature

import numpy as np
import pytest
import torch
from tasks import TINY_PROBLEMS, tiny_task
from torch.func import grad, hessian, jacrev

from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.data.batches import Draw, Integers
from fedmbo_ray.federation.draws import draw_batches
from fedmbo_ray.federation.execution import Block, Job, run_block
from fedmbo_ray.methods.lower.fedlin import unequal_steps
from fedmbo_ray.methods.lower.fedsvrg import local_svrg
from fedmbo_ray.problems import oracles
from fedmbo_ray.problems.base import Capabilities
from fedmbo_ray.problems.oracles import Gradient

CPU = torch.device("cpu")
TRAIN, VALIDATION = Draw("train", 3), Draw("validation", 3)
ORACLES = {
    "grad_y_lower": TRAIN,
    "grads_lower": TRAIN,
    "grad_x_upper": VALIDATION,
    "grad_y_upper": VALIDATION,
    "grads_upper": VALIDATION,
    "hessian_yy": TRAIN,
    "hessian_xy": TRAIN,
    "grad_x_through": (VALIDATION, TRAIN),
    "grad_y_through": (VALIDATION, TRAIN),
    "grads_pooled": (VALIDATION, TRAIN),
}
LAYERED = [name for name in TINY_PROBLEMS if name.startswith(("hyper", "ridge"))]


def oracle_of(name: str) -> Gradient:
    return oracles.grads_pooled(0.3) if name == "grads_pooled" else getattr(oracles, name)


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def point(task, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = task.problem.init(rng)
    return x + 0.1 * torch.from_numpy(rng.standard_normal(x.shape)), y + 0.1 * torch.from_numpy(
        rng.standard_normal(y.shape)
    )


@pytest.mark.parametrize("name", TINY_PROBLEMS)
def test_products_are_those_of_the_dense_matrices(name: str) -> None:
    task, rng = tiny_task(name), stream(0)
    x, y = point(task, rng)
    v = torch.from_numpy(rng.standard_normal(y.shape))
    block = Block(np.array([3]), draw_seeds(rng, 1), ())
    train, validation = (type(batch)(*(part[0] for part in batch)) for batch in draws(task, block))
    lower = lambda x, y: task.problem.lower(x, y, train)  # noqa: E731
    upper = lambda x, y: task.problem.upper(x, y, validation)  # noqa: E731
    for oracle, loss, batch in (("grads_lower", lower, train), ("grads_upper", upper, validation)):
        found, dense = getattr(oracles, oracle)(task.problem, batch, x, y), grad(loss, argnums=(0, 1))(x, y)
        assert all(close(a, b) for a, b in zip(found, dense, strict=True))
    found = oracles.grads_pooled(0.3)(task.problem, (validation, train), x, y)
    dense = grad(lambda x, y: 0.3 * upper(x, y) + 0.7 * lower(x, y), argnums=(0, 1))(x, y)
    assert all(close(a, b) for a, b in zip(found, dense, strict=True))
    assert close(oracles.hessian_yy(task.problem, train, x, y, v), hessian(lower, argnums=1)(x, y) @ v)
    mixed = jacrev(grad(lower, argnums=1), argnums=0)(x, y)  # (q, p)
    assert close(oracles.hessian_xy(task.problem, train, x, y, v), mixed.T @ v)


def draws(task, block: Block) -> list:
    return [draw_batches(task.data, draw, block.clients, block.seeds, CPU) for draw in (TRAIN, VALIDATION)]


@pytest.mark.parametrize("name", TINY_PROBLEMS)
def test_hessian_is_symmetric_and_strongly_convex(name: str) -> None:
    task, rng = tiny_task(name), stream(1)
    x, y = point(task, rng)
    block = Block(np.array([0]), draw_seeds(rng, 1), ())
    batch = draw_batches(task.data, TRAIN, block.clients, block.seeds, CPU)
    batch = type(batch)(*(part[0] for part in batch))
    u, v = torch.from_numpy(rng.standard_normal((2, *y.shape)))
    Hu, Hv = (oracles.hessian_yy(task.problem, batch, x, y, w) for w in (u, v))
    assert torch.isclose(u @ Hv, v @ Hu, rtol=1e-10)
    assert v @ Hv > 0.0009 * (v @ v)


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("name", TINY_PROBLEMS)
def test_a_block_computes_what_its_clients_would(name: str, oracle: str) -> None:
    task, rng = tiny_task(name), stream(2)
    kernel, draw = oracle_of(oracle), ORACLES[oracle]
    x, y = point(task, rng)
    each = (torch.from_numpy(rng.standard_normal((5, *y.shape))),) if "v" in signature(kernel.value).parameters else ()
    block = Block(rng.integers(20, size=5), draw_seeds(rng, 5), each)
    one_by_one = [run_block(task, Job(_hide(kernel), (x, y), draw, False), _slot(block, i), CPU) for i in range(5)]
    expected = [torch.cat(parts) for parts in zip(*one_by_one, strict=True)]
    stacked = run_block(task, Job(kernel, (x, y), draw, False), block, CPU)
    summed = run_block(task, Job(kernel, (x, y), draw, True), block, CPU)
    for a, b, c in zip(expected, stacked, summed, strict=True):
        assert close(a, b)
        assert close(a.sum(0), c)


class Unlayered:
    """A problem that keeps its formulas to itself."""

    capabilities = Capabilities(stacks=True)

    def __init__(self, problem) -> None:
        self.upper, self.lower = problem.upper, problem.lower


@pytest.mark.parametrize("oracle", [*ORACLES, "grads_lagrangian"])
@pytest.mark.parametrize("name", LAYERED)
def test_formulas_are_the_derivatives_that_autograd_finds(name: str, oracle: str) -> None:
    task, rng = tiny_task(name), stream(5)
    kernel, draw = oracle_of(oracle), ORACLES.get(oracle, (VALIDATION, TRAIN))
    x, y = point(task, rng)
    v = torch.from_numpy(rng.standard_normal((5, *y.shape)))
    shared, each = (x, y), (v,)
    if oracle == "grads_lagrangian":
        shared, each = (x, y, v[0]), ()
    elif "v" not in signature(kernel.value).parameters:
        each = ()
    block = Block(rng.integers(20, size=5), draw_seeds(rng, 5), each)
    for summed in (False, True):
        by_formula, by_autograd = (
            run_block(task._replace(problem=problem), Job(kernel, shared, draw, summed), block, CPU)
            for problem in (task.problem, Unlayered(task.problem))
        )
        assert all(close(a, b) for a, b in zip(by_formula, by_autograd, strict=True))


class Counted:
    """A problem that counts how often x looks at a batch."""

    def __init__(self, problem) -> None:
        self.problem, self.looks = problem, 0

    def __getattr__(self, name: str):
        return getattr(self.problem, name)

    def lower_sees(self, *args):
        self.looks += 1
        return self.problem.lower_sees(*args)


def test_steps_on_one_batch_look_at_it_once() -> None:
    task, rng = tiny_task("hyper_representation"), stream(6)
    x, y = point(task, rng)
    block = Block(np.arange(3), draw_seeds(rng, 3), ())
    svrg, fedlin = partial(local_svrg, step_size=0.1), partial(unequal_steps, step_size=0.1)
    for kernel, draw, looks in (
        (svrg, Draw("train", 3, count=4), 4),  # both gradients of a step
        (fedlin, (Draw("train", None, count=4), Integers(5)), 1),  # all local data in every step
    ):
        problem = Counted(task.problem)
        job = Job(kernel, (x, y, torch.zeros_like(y)), draw, False)
        (counted,) = run_block(task._replace(problem=problem), job, block, CPU)
        (plain,) = run_block(task._replace(problem=Unlayered(task.problem)), job, block, CPU)
        assert problem.looks == looks
        assert close(counted, plain)


@pytest.mark.parametrize("name", TINY_PROBLEMS)
def test_stacked_losses_are_the_losses(name: str) -> None:
    task, rng = tiny_task(name), stream(3)
    x, y = point(task, rng)
    ys = y + torch.from_numpy(rng.standard_normal((4, *y.shape)))
    block = Block(rng.integers(20, size=4), draw_seeds(rng, 4), ())
    for loss, draw in ((task.problem.lower, TRAIN), (task.problem.upper, VALIDATION)):
        batches = draw_batches(task.data, draw, block.clients, block.seeds, CPU)
        stacked = oracles.losses(loss, task.problem, x, ys, batches)
        single = [loss(x, ys[i], type(batches)(*(part[i] for part in batches))) for i in range(4)]
        assert close(stacked, torch.stack(single))


def test_several_draws_are_independent_and_counted_batches_stack() -> None:
    task = tiny_task("hyper_representation")
    block = Block(np.array([1, 2]), draw_seeds(stream(4), 2), ())
    first, second = draw_batches(task.data, (TRAIN, TRAIN), block.clients, block.seeds, CPU)
    assert not torch.equal(first.rows, second.rows)
    many = draw_batches(task.data, Draw("train", 3, count=1), block.clients, block.seeds, CPU)
    assert many.rows.shape == (2, 1, 3)


def _hide(kernel: Gradient):
    """The oracle as an ordinary kernel, so that the block can't use what it knows about it."""
    return lambda problem, batch, *args: kernel(problem, batch, *args)


def _slot(block: Block, i: int) -> Block:
    return Block(block.clients[i : i + 1], block.seeds[i : i + 1], tuple(rows[i : i + 1] for rows in block.each))
