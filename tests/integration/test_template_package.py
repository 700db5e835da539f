"""The template package learns, and the contract suite holds it to what it asks of everything."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest
from checkout import ROOT
from forked import Forks

TEMPLATE = ROOT / "fedmbo_ray" / "cli" / "template"

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


def test_the_templates_learn(forks: Forks, env: dict[str, str], tmp_path: Path) -> None:
    parts = [
        "algorithm.lower=my_methods_heavy_ball",
        "algorithm.lower.momentum=0.3",
        "data.partition=my_methods_halves",
    ]
    parts += ["algorithm.hypergradient=my_methods_one_term", "algorithm.outer=my_methods_signed"]
    parts += ["algorithm.step_size=0.001", "rounds=60"]
    code, out, err = forks.run("-m", "fedmbo_ray.run", *parts, "--json", "--out", "parts", cwd=tmp_path, env=env)
    assert code == 0, err
    assert json.loads(out)["test_accuracy"] > 0.85
    whole = ["algorithm=my_methods_local_soba", "problem=my_methods_pixel_ridge", "rounds=60"]
    code, out, err = forks.run("-m", "fedmbo_ray.run", *whole, "--json", "--out", "whole", cwd=tmp_path, env=env)
    assert code == 0, err
    assert json.loads(out)["test_accuracy"] > 0.8


def test_the_contract_suite_picks_them_up(forks: Forks, env: dict[str, str]) -> None:
    names = "(heavy_ball or one_term or signed or local_soba) and not ray_gives and not hyper_cleaning"
    options = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", "-W", "ignore:Module already imported"]
    code, out, err = forks.run("-m", "pytest", *options, "tests/unit/test_contract.py", "-k", names, cwd=ROOT, env=env)
    assert code == 0, out + err
    assert int(re.search(r"(\d+) passed", out)[1]) > 30
