"""What the README shows works as printed."""

import re
import sys
from types import ModuleType

import torch
from checkout import ROOT
from tasks import federation, tiny_task

from fedmbo_ray.core.rng import stream

README = (ROOT / "README.md").read_text()


def block_with(word: str) -> dict:
    """The names that the README's Python block with `word` in it defines."""
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.S) if word in block]
    module = sys.modules["readme"] = ModuleType("readme")
    exec(code, module.__dict__)
    return module.__dict__


def test_the_lower_solver() -> None:
    task = tiny_task("quadratic")
    x, y = task.problem.init(stream(0))
    solver = block_with("class HeavyBall")["HeavyBall"](steps=60, step_size=0.2, momentum=0.5, batch_size=4)
    solved, _ = solver.solve(federation(task, 20).clients(stream(1)), x, y + 1, {})
    assert (solved - y).norm() < 0.3 * torch.ones(4).norm()


def test_a_problem_of_two_losses_learns() -> None:
    names = block_with("def problem(data")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "def problem(data" in block]
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    losses = names["run"].records["upper_loss"]
    assert losses.iloc[-1] < 0.5 * losses.iloc[0]


def test_files_and_figures_that_it_links_to_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    headings = {
        "#" + line.strip("# ").lower().replace(" ", "-") for line in README.splitlines() if line.startswith("#")
    }
    assert links
    assert [link for link in links if link not in headings and not (ROOT / link).exists()] == []
