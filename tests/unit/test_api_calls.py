"""What callers of the Python interface may write, and which error they get for what they may not."""

from pathlib import Path

import pytest
from tasks import tiny_config

import fedmbo_ray
from fedmbo_ray import FedmboError, Run


def test_every_error_of_the_package_has_one_base() -> None:
    names = ("ConfigError", "DownloadError", "FolderDamaged", "FolderInUse", "RunFailed")
    assert all(issubclass(getattr(fedmbo_ray, name), FedmboError) for name in names)


def test_a_second_run_in_a_folder_says_that_the_first_is_open(tmp_path: Path) -> None:
    with Run(tiny_config(), out=tmp_path) as first:
        first.step()
        second = Run(out=tmp_path, resume=True)
        with pytest.raises(
            fedmbo_ray.FolderInUse, match="in use by a run that has not been closed, in this"
        ):
            second.step()
