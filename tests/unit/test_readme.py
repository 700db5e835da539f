"""What the README shows works as printed."""

import re
from pathlib import Path

import torch
from tasks import federation, tiny_task

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


def test_files_and_figures_that_it_links_to_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert links
    assert all((Path(__file__).parent.parent / link).exists() for link in links)
