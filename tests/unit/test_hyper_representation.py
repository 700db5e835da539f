"""Backbones as functions of x, and samples as clients draw them."""

import pickle

import numpy as np
import pytest
import torch
from tasks import tiny_config, tiny_task
from torch import nn
from torch.func import functional_call, grad, vmap

from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.data import array_clients
from fedmbo_ray.data.array_clients import ArrayClients, Rows, Scaling
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.problems.figures import metrics_of
from fedmbo_ray.problems.flat_module import FlatModule, flatten
from fedmbo_ray.problems.oracles import grad_x_upper, grad_y_lower
from fedmbo_ray.runs.build import build_task


def tied() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Linear(16, 3, bias=False))
    module[3].weight = module[1].weight
    return module.double()


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten()).double()


@pytest.mark.parametrize("make", [tied, convolution])
def test_a_placed_module_is_a_function_of_its_parameters(make) -> None:
    module, rng = make(), stream(1)
    own = flatten(module)
    inputs, x = (torch.from_numpy(rng.standard_normal(shape)) for shape in ((5, 1, 4, 4), own.shape))
    parts = x.split([parameter.numel() for parameter in module.parameters()])
    named = {name: part.view_as(old) for (name, old), part in zip(module.named_parameters(), parts, strict=True)}
    placed = FlatModule(module)
    assert torch.equal(placed(x, inputs), functional_call(module, named, (inputs,)))
    assert torch.equal(flatten(module), own)
    value = lambda x: placed(x, inputs).square().sum()  # noqa: E731
    step = 1e-6 * torch.from_numpy(rng.standard_normal(x.shape))
    assert torch.isclose(grad(value)(x) @ step, (value(x + step) - value(x - step)) / 2, rtol=1e-5)
    assert torch.allclose(vmap(grad(value))(torch.stack([x, 2 * x]))[1], grad(value)(2 * x))


def test_a_placed_module_that_raises_keeps_its_parameters() -> None:
    module = nn.Sequential(nn.Linear(4, 3))
    own = list(module.parameters())
    with pytest.raises(RuntimeError):
        FlatModule(module)(torch.zeros(15), torch.zeros(2, 5))
    assert all(a is b for a, b in zip(own, module.parameters(), strict=True))


def test_a_large_data_set_stays_bytes_and_draws_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = stream(0)
    rows = Rows.of(list(np.arange(40).reshape(4, 10)))
    inputs = rng.integers(0, 256, size=(40, 1, 3, 3)).astype(np.uint8)
    clients = ArrayClients(inputs, np.arange(40) % 3, {"train": rows, "validation": rows}, Scaling(130.0, 70.0))
    ready = clients.astype(torch.float32)
    monkeypatch.setattr(array_clients, "READY_BYTES", inputs.size * 4 - 1)
    late = clients.astype(torch.float32)
    assert ready.inputs.dtype == np.float32
    assert late.inputs.dtype == np.uint8
    seeds = draw_seeds(rng, 3)
    for draw in (Draw("train", 5), Draw("train", None), Draw("train", 2, count=3)):
        a, b = (each.draw(np.array([0, 2, 3]), seeds, draw, torch.device("cpu")) for each in (ready, late))
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_problem_can_be_sent_after_use() -> None:
    task = tiny_task("hyper_representation")
    x, y = task.problem.init(stream(0))
    before = metrics_of(task.problem, x, y, task.test)
    again = pickle.loads(pickle.dumps(task.problem))  # noqa: S301
    assert metrics_of(again, x, y, task.test) == before


def test_mixed_precision_rounds_features_and_nothing_else() -> None:
    whole, mixed = (
        build_task(
            tiny_config("hyper_representation", problem={"name": "hyper_representation", "mixed_precision": each})
        )
        for each in (False, True)
    )
    x, y = whole.problem.init(stream(0))
    batch = whole.data.draw(np.arange(3), np.arange(3, dtype=np.uint64), Draw("train", 4), torch.device("cpu"))
    for oracle in (grad_y_lower, grad_x_upper):
        expected, found = (oracle.sum(task.problem, batch, (x, y), ()) for task in (whole, mixed))
        assert found.dtype == expected.dtype
        assert not torch.equal(found, expected)
        assert torch.nn.functional.cosine_similarity(found, expected, 0) > 0.999
