"""Fixtures shared by the tests: one small real Ray cluster for the whole session, tasks of every problem."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedmbo_ray.datasets import data_root, load
from fedmbo_ray.downloads import DownloadError

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is left alone with one at the end."""

    def limit(item: pytest.Item) -> float:
        marker = item.get_closest_marker("timeout")
        return -marker.args[0] if marker is not None else 0.0

    items.sort(key=limit)


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A local Ray cluster with room for several actors, and two GPUs that only Ray believes in."""
    import ray

    path = [
        str(Path(__file__).parent),
        os.environ.get("PYTHONPATH", ""),
    ]  # kernels of tests must be importable in actors
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init("local", num_cpus=8, num_gpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def mnist() -> None:
    """Skips where MNIST can't be had."""
    try:
        load("mnist", data_root())
    except DownloadError as error:
        pytest.skip(str(error))
