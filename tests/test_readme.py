"""What the README shows works as printed."""

import re
from pathlib import Path

import numpy as np
import torch
from tasks import federation, tiny_config, tiny_task

from fedmbo_ray.building import build_task
from fedmbo_ray.rng import stream

README = (Path(__file__).parent.parent / "README.md").read_text()


def block_with(word: str) -> dict:
    """The names that the README's Python block with `word` in it defines."""
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.S) if word in block]
    names: dict = {"__name__": "readme"}
    exec(code, names)
    return names


def test_the_lower_solver() -> None:
    task = tiny_task("quadratic")
    x, y = task.problem.init(stream(0))
    solver = block_with("class HeavyBall")["HeavyBall"](steps=60, step_size=0.2, momentum=0.5, batch_size=4)
    solved = solver.solve(federation(task, 20).clients(stream(1)), x, y + 1)
    assert (solved - y).norm() < 0.3 * torch.ones(4).norm()


def test_the_kernel() -> None:
    task = tiny_task("hyper_representation")
    x, y = task.problem.init(stream(0))
    stepped = block_with("def local_steps")["solve"](federation(task, 4).clients(stream(1)), x, y)
    assert stepped.shape == y.shape
    assert not torch.equal(stepped, y)


def test_the_backbone(monkeypatch) -> None:
    import sys
    import types

    module = types.ModuleType("readme_models")
    module.wide = block_with("def wide")["wide"]
    monkeypatch.setitem(sys.modules, "readme_models", module)
    problem = {"name": "hyper_representation", "backbone": {"name": "readme_models:wide", "width": 5}}
    x, _ = build_task(tiny_config("hyper_representation", problem=problem)).problem.init(stream(0))
    assert len(x) == 64 * 5 + 5


def test_the_partition() -> None:
    labels = np.arange(100) % 10
    parts = block_with("class Halves")["Halves"]().split(labels, 10, stream(0))
    assert sorted(np.concatenate(parts)) == list(range(100))
    assert all(len({label % 2 for label in labels[part]}) == 1 for part in parts)


def test_files_and_figures_that_it_links_to_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert links
    assert all((Path(__file__).parent.parent / link).exists() for link in links)
