"""Removes folders so that a crash leaves no half of one."""

import shutil
from pathlib import Path

REST = ".removed"  # the ending of a folder that is being removed


def remove_folder(path: Path) -> None:
    """Remove a folder: a crash leaves all of it, or only a hidden rest, which `remove_rests` removes."""
    rest = path.with_name(f".{path.name}{REST}")
    shutil.rmtree(rest, ignore_errors=True)
    if path.exists():
        path.replace(rest)
        shutil.rmtree(rest)


def remove_rests(folder: Path) -> None:
    """Remove what processes that were killed have left of `remove_folder`; nobody else may be writing there."""
    for path in [*folder.rglob(f".*{REST}")]:
        shutil.rmtree(path, ignore_errors=True)
