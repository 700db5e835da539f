"""Other packages add methods and solvers by entry points; their mistakes harm nobody."""

import json
import os
import re
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest
from checkout import ROOT
from forked import Forks

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.methods.algorithms.fedmbo import FedMBO
from fedmbo_ray.methods.base import Algorithm

TOY = '''
from fedmbo_ray import Count, Draw, StepSize, oracles, settings


def both(problem, batch, x, y):
    validation, train = batch
    return oracles.grads_upper(problem, validation, x, y)[0], oracles.grad_y_lower(problem, train, x, y)


@settings
class Naive:
    """Alternating gradient steps that ignore how y depends on x."""

    step_size: StepSize
    batch_size: Count = 4

    def init(self, x, y, num_clients):
        return {"x": x, "y": y}

    def round(self, clients, state):
        draw = (Draw("validation", self.batch_size), Draw("train", self.batch_size))
        fx, gy = clients.mean(both, clients.sample(), state["x"], state["y"], draw=draw)
        step = self.step_size(clients.now)
        return {"x": state["x"] - step * fx, "y": state["y"] - step * gy}


@settings
class Lazy:
    """A lower solver that does nothing."""

    def solve(self, clients, x, y, kept):
        return y, kept

'''


def install(folder: Path, entry_points: str) -> dict[str, str]:
    """A package as pip would leave it in a folder; returns the environment in which Python finds it."""
    package, info = folder / "toy_methods", folder / "toy_methods-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text(TOY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-methods\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(entry_points))
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "RAY_DEDUP_LOGS": "0"}


def test_another_package_adds_a_method_and_a_solver_by_entry_point(forks: Forks, tmp_path: Path) -> None:
    env = install(
        tmp_path,
        """
        [fedmbo_ray.algorithms]
        naive = toy_methods:Naive
        [fedmbo_ray.lower]
        lazy = toy_methods:Lazy
        """,
    )
    command = partial(forks.run, "-m", env=env, cwd=tmp_path)
    small = ["rounds=3", "clients.num_clients=10", "clients.cohort_size=4", "--json"]
    results = {}
    for backend in ("in_process", "ray"):
        words = ["algorithm=naive", "algorithm.step_size=0.1", f"clients.backend={backend}", "clients.actors=2"]
        code, out, err = command("fedmbo_ray.run", *words, *small, "--out", backend)
        assert code == 0, err
        results[backend] = json.loads(out)["x_sha256"]
    assert results["in_process"] == results["ray"]
    assert "name: naive" in (tmp_path / "ray" / "config.yaml").read_text()
    code, _, err = command("fedmbo_ray.run", "algorithm.lower=lazy", *small, "--out", "lazy")
    assert code == 0, err
    listed = json.loads(command("fedmbo_ray.catalog", "naive", "lazy", "--json")[1])
    assert {(each["name"], each["package"]) for each in listed} == {("naive", "toy-methods"), ("lazy", "toy-methods")}
    code, _, err = command("fedmbo_ray.run", "algorithm=niave")
    assert code == 2
    assert "did you mean 'naive'?" in err


MISTAKES = {
    "broken = toy_methods:Nothing": "'broken' of toy-methods can't be loaded: AttributeError",
    "empty = toy_methods:Lazy": "'empty' of toy-methods must have init(x, y, num_clients), round(clients, state)",
    "plain = toy_methods:both": "'plain' of toy-methods must be a class with @settings",
    "fedmbo = toy_methods:Naive": "'fedmbo' is built in; toy-methods must give its own another name",
}


def test_another_packages_mistakes_are_named_and_harm_nobody(forks: Forks, tmp_path: Path) -> None:
    env = install(tmp_path, "[fedmbo_ray.algorithms]\n" + "\n".join(MISTAKES) + "\n")
    command = partial(forks.run, "-m", env=env, cwd=tmp_path)
    _, listed, _ = command("fedmbo_ray.catalog", "--json")
    for point, said in MISTAKES.items():
        name = point.split()[0]
        assert said in listed
        with pytest.raises(ConfigError, match=re.escape(said)):
            read_in(tmp_path, name)
    code, _, err = command("fedmbo_ray.run", "algorithm=broken")
    assert code == 2
    assert err.count("\n") == 1
    assert MISTAKES["broken = toy_methods:Nothing"] in command("fedmbo_ray.catalog", "broken")[1]
    assert command("fedmbo_ray.run", "rounds=1", "--out", "fine")[0] == 0


def read_in(folder: Path, name: str) -> None:
    """Look a name up in this process, with the folder's packages."""
    sys.path.insert(0, str(folder))
    try:
        Registry("algorithm", "algorithms", Algorithm, {"fedmbo": FedMBO})[name]
    finally:
        sys.path.remove(str(folder))
