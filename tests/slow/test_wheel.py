"""The wheel alone: built, installed without the checkout, and every command run from empty folders.

Each test needs the wheel and nothing of the others, so that a step can be run by itself (-k study, say).
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from fedmbo_ray import __version__

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "fedmbo_ray", "analysis", "tune_configs")  # to build it
NO_NETWORK = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"

pytestmark = pytest.mark.timeout(900)


def call(*words: str | Path, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    line = list(map(str, words))
    done = subprocess.run(line, cwd=cwd, env=env, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, f"{line} in {cwd}:\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from a copy of what it needs, so that nothing else of the checkout gets in."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("sdist")
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    done = call(sys.executable, "-c", SDIST, out, cwd=source)
    assert "Warning" not in done.stdout + done.stderr
    return next(out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    done = call(sys.executable, "-m", "pip", "wheel", "-v", *NO_NETWORK, "--wheel-dir", out, sdist, cwd=out)
    assert "Warning" not in done.stdout + done.stderr
    return next(out.glob("*.whl"))


class Environment:
    """A new virtual environment with the wheel in it, and the other packages of this one."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        call(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
        # Python takes packages from a folder that a .pth file names, but not the .pth files in it: an editable install
        # of the checkout stays out.
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
        dropped = ("PYTHONPATH", "MLFLOW_TRACKING_URI", "RAY_ADDRESS")
        path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.env = {key: value for key, value in os.environ.items() if key not in dropped} | {"PATH": path}
        self.install(wheel, folder)

    def install(self, what: Path | str, cwd: Path) -> None:
        """Into this environment alone: what the other one has is left as it is."""
        self.python("-m", "pip", "install", "--quiet", "--ignore-installed", *NO_NETWORK, what, cwd=cwd)

    def python(self, *words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        return call(self.folder / "bin" / "python", *words, cwd=cwd, env=self.env)

    def fedmbo(self, *words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        return call(self.folder / "bin" / "fedmbo", *words, cwd=cwd, env=self.env)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment") / "venv", wheel)


def test_it_adds_one_name_with_all_that_commands_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names} == {"fedmbo_ray", f"fedmbo_ray-{__version__}.dist-info"}
    sweeps = {f"fedmbo_ray/{file.relative_to(ROOT)}" for file in (ROOT / "tune_configs").rglob("*.yaml")}
    template = {str(file.relative_to(ROOT)) for file in (ROOT / "fedmbo_ray/cli/template").rglob("*.*")}
    code = {f"fedmbo_ray/{file.relative_to(ROOT)}" for file in (ROOT / "analysis").rglob("*.py")}
    others = {"fedmbo_ray/py.typed", "fedmbo_ray/config/default.yaml", "fedmbo_ray/analysis/errata.md"}
    assert sweeps | code | others | {name for name in template if ".pyc" not in name} <= names
    assert not [name for name in names if "results" in name or "__pycache__" in name or name.startswith("tests/")]


def test_the_sdist_has_files_where_the_checkout_has_links(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        inside = f"fedmbo_ray-{__version__}/fedmbo_ray"
        assert archive.getmember(f"{inside}/analysis/errata.md").isreg()
        assert archive.getmember(f"{inside}/tune_configs/quickstart.yaml").isreg()


def test_what_is_imported_is_the_wheel(installed: Environment, tmp_path: Path) -> None:
    program = "import fedmbo_ray, fedmbo_ray.analysis as a; print(fedmbo_ray.__file__); print(a.__file__)"
    for file in installed.python("-c", program, cwd=tmp_path).stdout.splitlines():
        assert Path(file).is_relative_to(installed.folder)
    assert installed.fedmbo("--version", cwd=tmp_path).stdout == f"fedmbo_ray {__version__}\n"


def test_runs_and_their_picture(installed: Environment, tmp_path: Path) -> None:
    done = installed.fedmbo("run", "rounds=20", "--json", "--out", "runs/mine", cwd=tmp_path)
    assert json.loads(done.stdout)["round"] == 20
    shipped = ("-m", "fedmbo_ray.run", "tune_configs/hyper_cleaning.yaml", "rounds=3", "--out", "runs/cleaning")
    installed.python(*shipped, cwd=tmp_path)
    installed.fedmbo("run", "quadratic", "rounds=3", "--out", "runs/quadratic", cwd=tmp_path)
    installed.fedmbo("plot", "runs/mine", cwd=tmp_path)
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    assert "fednest" in installed.fedmbo("catalog", cwd=tmp_path).stdout
    assert "10 clients" in installed.fedmbo("data", "digits", "clients.num_clients=10", cwd=tmp_path).stdout


def test_a_sweep(installed: Environment, tmp_path: Path) -> None:
    small = (
        "rounds=10",
        "algorithm.step_size={grid: [0.01, 0.05]}",
        "algorithm.lower.step_size=0.5",
        "tune.concurrency=1",
    )
    installed.fedmbo("tune", *small, "tune.scheduler=fifo", "--out", "sweep", cwd=tmp_path)
    assert (tmp_path / "sweep" / "best.yaml").exists()
    assert (tmp_path / "mlflow.db").exists()
    installed.fedmbo("tune", "tune_configs/mnist_steps.yaml", "--dry-run", cwd=tmp_path)


def test_a_study_and_a_report(installed: Environment, tmp_path: Path) -> None:
    installed.fedmbo("study", "theory", "--scale", "smoke", cwd=tmp_path)
    said = installed.fedmbo("report", cwd=tmp_path).stdout
    assert "theory" in said
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Errata of the paper" in page


def test_a_new_package_installs_works_and_passes_its_own_test(installed: Environment, tmp_path: Path) -> None:
    installed.fedmbo("new", "my_methods", cwd=tmp_path)
    installed.install("./my_methods", tmp_path)
    run = ("run", "algorithm=my_methods_local_soba", "problem=my_methods_pixel_ridge", "rounds=60", "--json")
    assert json.loads(installed.fedmbo(*run, cwd=tmp_path).stdout)["test_accuracy"] > 0.8
    said = installed.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "my_methods", cwd=tmp_path).stdout
    assert "8 passed" in said
