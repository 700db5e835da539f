"""What tests share: one small Ray cluster, one process that forks commands, one empty MLflow database."""

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checkout import ROOT
from forked import Forks
from xdist.scheduler import LoadScopeScheduling

from fedmbo_ray.core.errors import DownloadError
from fedmbo_ray.data.datasets import data_root, load_dataset

torch.set_num_threads(1)
FOLDERS = ("slow", "integration", "unit")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no process is left alone with one at the end."""

    def order(item: pytest.Item) -> tuple[int, float]:
        marker = item.get_closest_marker("timeout")
        return FOLDERS.index(item.path.parent.name), -marker.args[0] if marker is not None else 0.0

    items.sort(key=order)
    for item in items:
        if item.path.parent.name == "slow":
            item.add_marker(pytest.mark.slow)


class ByFile(LoadScopeScheduling):
    """Files that start something are given to one of pytest's processes as a whole, others test by test.

    So what tests of a file share is made once. (The marker `xdist_group` has no effect with pytest 9.)
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if "/unit/" in nodeid else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.fixture(autouse=True)
def _no_ray_in_unit_tests(request: pytest.FixtureRequest) -> None:
    """Unit tests, which come last, see the machine and not the cluster that tests before them shared."""
    if request.path.parent.name == "unit" and "ray" in sys.modules and sys.modules["ray"].is_initialized():
        sys.modules["ray"].shutdown()


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of a Ray cluster with room for several actors, and two GPUs that only Ray believes in."""
    import ray

    folders = [str(ROOT), *(str(ROOT / "tests" / name) for name in ("support", *FOLDERS))]  # actors import kernels
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH", "")]))
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init("local", num_cpus=8, num_gpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Starts commands as processes that have imported everything already."""
    started = Forks()
    yield started
    started.close()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database with nothing in it: its forty migrations take seconds, a copy takes none."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    file = shared / "empty.db"
    with (shared / "empty.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            from mlflow import MlflowClient

            MlflowClient(f"sqlite:///{shared}/new.db").search_experiments()
            (shared / "new.db").rename(file)
    return file


@pytest.fixture
def database(empty_database: Path, tmp_path: Path) -> Iterator[str]:
    """The address of the MLflow database `mlflow.db` in the test's folder, where commands look for it."""
    import mlflow

    shutil.copy(empty_database, tmp_path / "mlflow.db")
    yield f"sqlite:///{tmp_path}/mlflow.db"
    mlflow.set_tracking_uri(None)  # what a test has told MLflow would go on to be where the next one looks


@pytest.fixture(scope="session")
def mnist() -> None:
    """Skips where MNIST can't be had."""
    try:
        load_dataset("mnist", data_root())
    except DownloadError as error:
        pytest.skip(str(error))
