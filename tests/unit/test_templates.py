"""The template package works as docs/adding.md says, and so do the links and the code in that page."""

import json
import os
import re
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest
from tasks import tiny_config

from fedmbo_ray.building import build_task
from fedmbo_ray.catalog import KINDS
from fedmbo_ray.rng import stream

ROOT = Path(__file__).parent.parent
TEMPLATE = ROOT / "docs" / "template"
PAGE = (ROOT / "docs" / "adding.md").read_text()
POINTS = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]["entry-points"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Where Python finds the template as if it was installed."""
    info = tmp_path / "my_methods-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_methods\nVersion: 0.1\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in POINTS[group].items()) for group in POINTS
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, TEMPLATE, ROOT)))}


def python(env: dict[str, str], cwd: Path, *words: str) -> subprocess.CompletedProcess:
    line = [sys.executable, *words]
    return subprocess.run(line, env=env, cwd=cwd, capture_output=True, text=True, timeout=280, check=False)


def test_every_kind_has_a_template() -> None:
    groups = {registry.group for registry in KINDS.values()}
    assert POINTS.keys() <= groups
    assert groups - POINTS.keys() == {"fedmbo_ray.schedules", "fedmbo_ray.smoothness"}
    assert all(group in PAGE for group in groups)


def test_the_templates_learn(env: dict[str, str], tmp_path: Path) -> None:
    parts = ["algorithm.lower=heavy_ball", "algorithm.lower.momentum=0.3", "algorithm.hypergradient=one_term"]
    parts += ["algorithm.outer=signed", "algorithm.step_size=0.001", "data.partition=halves", "rounds=60"]
    ran = python(env, tmp_path, "-m", "fedmbo_ray.run", *parts, "--json", "--out", "parts")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["test_accuracy"] > 0.85
    whole = ["algorithm=local_soba", "problem=pixel_ridge", "rounds=60"]
    ran = python(env, tmp_path, "-m", "fedmbo_ray.run", *whole, "--json", "--out", "whole")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["test_accuracy"] > 0.8


def test_the_contract_suite_picks_them_up(env: dict[str, str]) -> None:
    names = "(heavy_ball or one_term or signed or local_soba) and not ray_gives and not hyper_cleaning"
    options = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", "tests/test_contract.py", "-k", names]
    ran = python(env, ROOT, "-m", "pytest", *options)
    assert ran.returncode == 0, ran.stdout
    assert int(re.search(r"(\d+) passed", ran.stdout)[1]) > 30


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
