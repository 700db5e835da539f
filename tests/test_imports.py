"""A file imports only what stands above it, and the algorithms know neither Ray nor configs."""

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "fedmbo_ray"

# From the ground up; a room may import rooms of its own line or above.
ORDER = [
    ["rng", "cards", "registry", "downloads", "joining"],
    ["data", "datasets"],
    ["partitions", "problems"],
    ["layers", "availability"],
    ["oracles"],
    ["blocks"],
    ["federation"],
    ["schedules", "smoothness"],
    ["memory"],
    ["lower", "hypergradients", "outer"],
    ["algorithms"],
    ["checkpoints"],
    ["profiling", "placement"],
    ["backends"],
    ["config", "command"],
    ["loading", "building"],
    ["experiment", "progress"],
    ["driver"],
    ["sweeps", "moments"],
    ["studies"],
    ["tracking"],
    ["run", "tune", "catalog", "cluster"],
    ["study"],
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_file_has_its_place() -> None:
    rooms = {room(path) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    assert rooms == set(LEVEL)


def test_imports_point_upwards() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        for name in imported(path)
        if name.startswith("fedmbo_ray.") and LEVEL[name.split(".")[1]] > LEVEL[room(path)]
    ]
    assert wrong == []


def test_algorithms_know_neither_ray_nor_configs() -> None:
    for path in [*PACKAGE.glob("lower/*.py"), *PACKAGE.glob("hypergradients/*.py"), *PACKAGE.glob("algorithms/*.py")]:
        assert not {name for name in imported(path) if name.split(".")[0] == "ray" or name == "fedmbo_ray.config"}


def test_a_report_needs_no_algorithm() -> None:
    """Figures are drawn from what MLflow says."""
    program = "import sys, analysis.report; print([name for name in sys.modules if 'fedmbo_ray.algorithms' in name])"
    done = subprocess.run([sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
