"""Movements of a watch during physiotherapy, by patient."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray.data.columns import TEST
from fedmbo_ray.data.dataset import About, Dataset, numbered
from fedmbo_ray.data.downloads import fetch
from fedmbo_ray.data.registries import from_pip

FILES = {"watch_dataset.npy": "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"}
PACKAGE = "seglearn==1.2.5"
WAYS = {f"the pip package {PACKAGE}": from_pip(PACKAGE, "seglearn/data/watch_dataset.npy")}
LENGTH = 100  # of a window, in samples: 2 s at 50 Hz

ABOUT = About(
    1_877,
    416,
    (6, LENGTH),
    7,
    tuple(FILES),
    clients=10,
    licence="BSD-3-Clause (seglearn)",
    source=f"Burns et al. 2018 (smartwatch shoulder exercises); pip {PACKAGE}",
)


def exercises(root: Path) -> Dataset:
    """Acceleration and rotation of a watch, windows of 2 s out of 140 series, one client per person: which exercise?"""
    fetch("exercises", root / "exercises", FILES, WAYS)
    loaded = np.load(root / "exercises" / "watch_dataset.npy", allow_pickle=True)  # its SHA-256 was found right
    return of_series(loaded.item())


def of_series(data: dict[str, Any]) -> Dataset:
    """The last fifth of every series is for testing, in time order, and no two windows overlap."""
    parts: dict[str, list[Any]] = {"train": [], "test": []}
    for series, exercise, person in zip(data["X"], data["y"], data["subject"], strict=True):
        cut = round((1 - TEST) * len(series))
        for part, own in (("train", series[:cut]), ("test", series[cut:])):
            made = windows(own)
            parts[part].append((made, np.full(len(made), exercise), np.full(len(made), person)))
    train, test = ([np.concatenate(arrays) for arrays in zip(*parts[part], strict=True)] for part in ("train", "test"))
    clients, people = numbered(train[2])
    labels = (train[1].astype(np.int64), test[1].astype(np.int64))
    return Dataset("exercises", train[0], labels[0], test[0], labels[1], clients, people, tuple(data["y_labels"]))


def windows(series: NDArray[np.floating]) -> NDArray[np.float32]:
    """The windows of a series, one after another, of shape (time, channels), as (windows, channels, length)."""
    found = np.lib.stride_tricks.sliding_window_view(series, LENGTH, axis=0)[::LENGTH]
    return np.ascontiguousarray(found, dtype=np.float32)
