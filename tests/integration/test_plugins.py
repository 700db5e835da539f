"""The catalogue knows every name, and other packages can add theirs."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fedmbo_ray.algorithms.fedmbo import FedMBO
from fedmbo_ray.cards import STATUS
from fedmbo_ray.catalog import KINDS, entries, main
from fedmbo_ray.registry import ConfigError, Registry


def test_every_name_of_every_kind_is_listed(capsys) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    for kind, registry in KINDS.items():
        assert kind in printed
        for name in registry:
            assert name in printed


def test_as_json(capsys) -> None:
    assert main(["--json"]) == 0
    found = {(each["kind"], each["name"]): each for each in json.loads(capsys.readouterr().out)}
    fednest = found["algorithm", "fednest"]
    assert (fednest["communications"], fednest["participation"]) == ("2*T + D + 3", "partial")
    assert fednest["parameters"]["hypergradient"] == {"terms": 5, "batch_size": 32}
    assert found["algorithm.lower", "fedavg"]["parameters"]["local_steps"] == "required"
    assert found["algorithm", "adafbio"]["status"] == "reconstructed"
    assert all(each["status"] in STATUS for each in found.values() if each["paper"])
    assert all(each["summary"] and each["description"] for each in found.values())
    assert found["algorithm", "double_loop"]["parameters"]["outer"] == {"name": "plain"}


def test_details_of_one(capsys) -> None:
    assert main(["scaffold"]) == 0
    printed = capsys.readouterr().out
    assert "status: reconstructed; not checked against the paper's text" in printed
    assert "server_step_size: 1.0" in printed


def test_a_kind_can_be_asked_for_and_narrow_terminals_lose_no_formula(capsys, monkeypatch) -> None:
    assert main(["algorithm.lower"]) == 0
    printed = capsys.readouterr().out
    assert "proxskip" in printed
    assert "fednest " not in printed
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["algorithm"]) == 0
    printed = capsys.readouterr().out
    lines = re.sub(r"\x1b\[[0-9;]*m", "", printed).splitlines()
    assert max(map(len, lines)) <= 80
    assert printed.count("…") == 1  # {0, …, N−1} in the legend


def test_an_unknown_name_is_answered_with_the_nearest_known_one(capsys) -> None:
    assert main(["fednset"]) == 2
    assert capsys.readouterr().err.startswith("error: nothing is called 'fednset'; did you mean 'fednest'? known: ")


def test_methods_have_all_that_a_table_needs() -> None:
    for each in entries():
        if each.kind == "algorithm" and each.name != "double_loop":
            assert each.paper
            assert each.communications
            assert each.floats_down
            assert each.floats_up
            assert each.participation


TOY = '''
from fedmbo_ray.cards import Card, Cost
from fedmbo_ray.data import Draw
from fedmbo_ray.oracles import grads_upper, grad_y_lower
from fedmbo_ray.registry import Count, settings
from fedmbo_ray.schedules import StepSize


def both(problem, batch, x, y):
    validation, train = batch
    return grads_upper(problem, validation, x, y)[0], grad_y_lower(problem, train, x, y)


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
        step = self.step_size(clients)
        return {"x": state["x"] - step * fx, "y": state["y"] - step * gy}


@settings
class Lazy:
    """A lower solver that does nothing."""

    def solve(self, clients, x, y):
        return y
'''


def install(folder: Path, entry_points: str) -> dict[str, str]:
    """A package as pip would leave it in a folder; returns the environment in which Python finds it."""
    package, info = folder / "toy_methods", folder / "toy_methods-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text(TOY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-methods\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(entry_points))
    here = Path(__file__).parent.parent
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{here}", "RAY_DEDUP_LOGS": "0"}


def command(env: dict[str, str], cwd: Path, module: str, *words: str) -> subprocess.CompletedProcess:
    line = [sys.executable, "-m", f"fedmbo_ray.{module}", *words]
    return subprocess.run(line, env=env, cwd=cwd, capture_output=True, text=True, timeout=200, check=False)


def test_another_package_adds_a_method_and_a_solver_by_entry_point(tmp_path: Path) -> None:
    env = install(
        tmp_path,
        """
        [fedmbo_ray.algorithms]
        naive = toy_methods:Naive
        [fedmbo_ray.lower]
        lazy = toy_methods:Lazy
        """,
    )
    small = ["rounds=3", "clients.num_clients=10", "clients.cohort_size=4", "--json"]
    results = {}
    for backend in ("in_process", "ray"):
        words = ["algorithm=naive", "algorithm.step_size=0.1", f"clients.backend={backend}", "clients.actors=2"]
        ran = command(env, tmp_path, "run", *words, *small, "--out", backend)
        assert ran.returncode == 0, ran.stderr
        results[backend] = json.loads(ran.stdout)["x_sha256"]
    assert results["in_process"] == results["ray"]
    assert "name: naive" in (tmp_path / "ray" / "config.yaml").read_text()
    ran = command(env, tmp_path, "run", "algorithm.lower=lazy", *small, "--out", "lazy")
    assert ran.returncode == 0, ran.stderr
    listed = json.loads(command(env, tmp_path, "catalog", "naive", "lazy", "--json").stdout)
    assert {(each["name"], each["package"]) for each in listed} == {("naive", "toy-methods"), ("lazy", "toy-methods")}
    wrong = command(env, tmp_path, "run", "algorithm=niave")
    assert wrong.returncode == 2
    assert "did you mean 'naive'?" in wrong.stderr


MISTAKES = {
    "broken = toy_methods:Nothing": "'broken' of toy-methods can't be loaded: AttributeError",
    "empty = toy_methods:Lazy": "'empty' of toy-methods must have init, round",
    "plain = toy_methods:both": "'plain' of toy-methods must be a class with @settings",
    "fedmbo = toy_methods:Naive": "'fedmbo' is built in; toy-methods must give its own another name",
}


def test_another_packages_mistakes_are_named_and_harm_nobody(tmp_path: Path) -> None:
    env = install(tmp_path, "[fedmbo_ray.algorithms]\n" + "\n".join(MISTAKES) + "\n")
    listed = command(env, tmp_path, "catalog", "--json").stdout
    for point, said in MISTAKES.items():
        name = point.split()[0]
        assert said in listed
        with pytest.raises(ConfigError, match=re.escape(said)):
            read_in(tmp_path, name)
    ran = command(env, tmp_path, "run", "algorithm=broken")
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert MISTAKES["broken = toy_methods:Nothing"] in command(env, tmp_path, "catalog", "broken").stdout
    assert command(env, tmp_path, "run", "rounds=1", "--out", "fine").returncode == 0


def read_in(folder: Path, name: str) -> None:
    """Look a name up in this process, with the folder's packages."""
    sys.path.insert(0, str(folder))
    try:
        Registry("algorithm", "algorithms", ("init", "round"), {"fedmbo": FedMBO})[name]
    finally:
        sys.path.remove(str(folder))
