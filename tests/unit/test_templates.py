"""The template package works as docs/adding.md says, and so do the links and the code in that page."""

import re
import sys
import tomllib
import types

from checkout import ROOT
from tasks import tiny_config

from fedmbo_ray.cli.entries import KINDS
from fedmbo_ray.core.rng import stream
from fedmbo_ray.runs.build import build_task

TEMPLATE = ROOT / "fedmbo_ray" / "cli" / "template"
PAGE = (ROOT / "docs" / "adding.md").read_text()
POINTS = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]["entry-points"]


def test_every_kind_has_a_template() -> None:
    groups = {registry.group for registry in KINDS.values()}
    assert POINTS.keys() <= groups
    assert groups - POINTS.keys() == {"fedmbo_ray.schedules", "fedmbo_ray.smoothness"}
    assert all(group in PAGE for group in groups)


def test_the_backbone_of_the_page(monkeypatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    module = types.ModuleType("page_models")
    exec(code, module.__dict__)
    monkeypatch.setitem(sys.modules, "page_models", module)
    problem = {"name": "hyper_representation", "backbone": {"name": "page_models:wide", "width": 5}}
    x, _ = build_task(tiny_config("hyper_representation", problem=problem)).problem.init(stream(0))
    assert len(x) == 64 * 5 + 5


def test_what_the_page_links_to_exists() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link
