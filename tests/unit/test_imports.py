"""A room imports only rooms above it, and the methods know neither Ray nor configs."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from checkout import ROOT

PACKAGE = ROOT / "fedmbo_ray"

# From the ground up: a room may import itself and what stands above it.
ROOMS = [
    "core",
    "data",
    "problems",
    "federation",
    "methods",
    "backends",
    "config",
    "runs",
    "sweeps",
    "tracking",
    "theory",
    "studies",
    "analysis",
    "api",
    "testing",  # what the tests of plug-ins call
    "cli",
    "commands",  # python -m fedmbo_ray, python -m fedmbo_ray.run and the like, two lines each
    "benchmarks",
]
COMMANDS = {"__main__", "run", "tune", "study", "report", "plot", "catalog", "cluster"}


def room(module: str) -> str | None:
    """Of a module's dotted name; None for the package itself, and for what is not ours."""
    parts = module.split(".")
    if parts[0] == "benchmarks":
        return "benchmarks"
    if parts[0] != "fedmbo_ray" or len(parts) == 1:
        return None
    return "commands" if parts[1] in COMMANDS else parts[1]


def files() -> Iterator[tuple[str, Path]]:
    """Every module by its dotted name."""
    for folder, name in (
        (PACKAGE, "fedmbo_ray"),
        (ROOT / "analysis", "fedmbo_ray.analysis"),
        (ROOT / "benchmarks", "benchmarks"),
    ):
        for path in folder.rglob("*.py"):
            inner = path.relative_to(folder).with_suffix("").parts
            if "template" not in inner and (name != "fedmbo_ray" or inner[0] != "analysis"):
                yield ".".join((name, *inner)).removesuffix(".__init__"), path


def imported(path: Path) -> set[str]:
    """The modules that a file names; of `from package import name`, the name in the package."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_every_file_is_in_a_room() -> None:
    assert {room(module) for module, _ in files()} - {None} == set(ROOMS)


def test_a_room_imports_rooms_above_it() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in files()
        if (here := room(module)) is not None
        for name in imported(path)
        if name != "fedmbo_ray.__version__"
        and (there := room(name)) is not None
        and ROOMS.index(there) > ROOMS.index(here)
    ]
    assert wrong == []


def test_methods_know_neither_ray_nor_configs() -> None:
    for path in (PACKAGE / "methods").rglob("*.py"):
        assert not {name for name in imported(path) if name.split(".")[0] == "ray" or room(name) == "config"}


BEFORE_ITS_FIRST_ROUND = """
import sys
from fedmbo_ray.api.sweep import plan_of
from fedmbo_ray.runs.loop import run
from fedmbo_ray.sweeps.trial import run_in  # what a trial's process calls

sweep = plan_of(None, [])
print(next(run(sweep.config(sweep.points()[0])))["round"], *sorted(sys.modules))
"""
FOR_OTHERS = {"mlflow", "sqlalchemy", "matplotlib", "sklearn", "torchvision", "optuna", "sympy", "torch._dynamo"}


def test_a_trial_imports_no_more_than_it_needs() -> None:
    """Every process of a sweep would pay for it, up to a second for each."""
    done = subprocess.run([sys.executable, "-c", BEFORE_ITS_FIRST_ROUND], cwd=ROOT, capture_output=True, text=True)
    round, *modules = done.stdout.split()
    assert round == "0", done.stderr
    assert FOR_OTHERS & {*modules} == set()
    assert {name for name in modules if name.startswith("scipy.")} == set()


def test_a_report_needs_no_algorithm() -> None:
    """Figures are drawn from what MLflow says."""
    program = "import sys, fedmbo_ray.analysis.report; print(sys.modules.keys() & {'torch', 'fedmbo_ray.methods'})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
