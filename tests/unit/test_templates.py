"""The template package works as docs/adding.md says, and so do the links and the code in that page."""

import re
import sys
import tomllib
import types

import numpy as np
import torch
from checkout import ROOT
from tasks import federation, tiny_config, tiny_task

from fedmbo_ray import Draw, Leg, oracles
from fedmbo_ray.cli.entries import KINDS
from fedmbo_ray.core.rng import stream
from fedmbo_ray.methods.hypergradients.phe_sum import PHESum
from fedmbo_ray.runs.build import build_task

TEMPLATE = ROOT / "fedmbo_ray" / "cli" / "template"
PAGE = (ROOT / "docs" / "adding.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.S)
POINTS = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]["entry-points"]


def test_every_kind_has_a_template() -> None:
    groups = {registry.group for registry in KINDS.values()}
    assert POINTS.keys() <= groups
    assert groups - POINTS.keys() == {"fedmbo_ray.schedules", "fedmbo_ray.smoothness"}
    assert all(group in PAGE for group in groups)


def test_the_backbone_of_the_page(monkeypatch) -> None:
    _, code = CODE
    module = types.ModuleType("page_models")
    exec(code, module.__dict__)
    monkeypatch.setitem(sys.modules, "page_models", module)
    problem = {"name": "hyper_representation", "backbone": {"name": "page_models:wide", "width": 5}}
    x, _ = build_task(tiny_config("hyper_representation", problem=problem)).problem.init(stream(0))
    assert len(x) == 64 * 5 + 5


def test_the_relay_of_the_page() -> None:
    names = {"Draw": Draw, "Leg": Leg, "oracles": oracles}
    exec(CODE[0], names)
    task = tiny_task("quadratic")
    x, y = task.problem.init(stream(0))
    both = [federation(task, 6).clients(stream(1)) for _ in range(2)]
    l = torch.tensor(20.0, dtype=torch.float64)
    expected, _ = PHESum(terms=1, batch_size=32).estimate(both[0], x, y, l, {})
    assert torch.equal(names["columns"](both[1], x, y, l, np.zeros(6, dtype=int)), expected)


def test_what_the_page_links_to_exists() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link
