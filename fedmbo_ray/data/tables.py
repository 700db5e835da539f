"""Tables of users' own: CSV and parquet files, one row for each sample."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray.core.errors import ConfigError, first_line
from fedmbo_ray.data.dataset import AnyArray, Dataset
from fedmbo_ray.data.reading import Source, column, existing_file, finished, some

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MOST_VALUES = 1000  # of a column to encode
TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


class NamedTable(NamedTuple):
    """A table and the key of the config that names its file."""

    rows: "DataFrame"
    key: str


def read_table(source: Source) -> Dataset:
    """The data set in a file, and in another one with the rows to test on if there is one."""
    tables = [table_of(source.place, "path")]
    if isinstance(source.test, Path):
        tables.append(table_of(source.test, "test"))
    return finished(source, arrays_of(source, tables))


def arrays_of(source: Source, tables: list[NamedTable]) -> dict[str, AnyArray]:
    """A table as arrays: numbers are features, but for the columns that a config gives another role."""
    known = list(tables[0].rows.columns)
    roles = roles_of(source, known)
    features = [name for name in known if name not in roles.values()]
    if not features:
        raise ConfigError(f"must have a column besides {', '.join(roles.values())} to learn from", "path")
    for name in source.categories:
        if column(name, known, "categories") not in features:
            raise ConfigError(f"must be features, but {name!r} is the target, the client or the group", "categories")
    require_columns([*features, *(name for role, name in roles.items() if role != "clients")], tables)
    values = {name: values_of(name, tables) for name in source.categories}
    arrays: dict[str, AnyArray] = {}
    for table, prefix in zip(tables, ("", "test_"), strict=False):
        arrays[f"{prefix}inputs"] = np.concatenate([encoded(table, name, values) for name in features], axis=1)
        for role, name in roles.items():
            if name in table.rows.columns and (role != "clients" or not prefix):
                arrays[prefix + role] = plain_column(table, name)
    return arrays


def table_of(path: Path, key: str) -> NamedTable:
    """The table in a file; a ConfigError says why it can't be read."""
    import pandas as pd  # takes half a second

    path, name = existing_file(path, key), path.name.lower()
    if not name.endswith(TABLES):
        raise ConfigError(f"must end in one of {', '.join(TABLES)}, but is {path.name}", key)
    try:
        separator = "\t" if ".tsv" in name else ","
        rows = pd.read_parquet(path) if name.endswith(".parquet") else pd.read_csv(path, sep=separator)
    except (ValueError, OSError, EOFError) as error:  # pandas' and pyarrow's errors are ValueErrors
        raise ConfigError(f"{path} can't be read as a table: {first_line(error)}", key) from None
    if not len(rows):
        raise ConfigError(f"must have rows, but {path} has a header alone", key)
    rows.columns = [str(name).strip() for name in rows.columns]
    require_header(list(rows.columns), path, key)
    return NamedTable(rows.reset_index(drop=True), key)


def require_header(names: list[str], path: Path, key: str) -> None:
    """Raise a ConfigError if a header has another separator, or a column without a name, such as row numbers."""
    if len(names) == 1 and ";" in names[0]:
        raise ConfigError(
            f"must have commas between columns, but {path} begins with {names[0][:40]!r}; save it anew", key
        )
    if any(name.startswith("Unnamed: ") for name in names):
        number = next(i for i, name in enumerate(names) if name.startswith("Unnamed: "))
        raise ConfigError(
            f"must have a name for every column, but column {number + 1} of {path} has none; if it has row numbers, "
            "leave it out: to_csv(..., index=False)",
            key,
        )


def roles_of(source: Source, known: list[str]) -> dict[str, str]:
    """The columns that are no features, by what they are."""
    if source.target is None:
        raise ConfigError(f"is required: the column to predict; {some('', known)}", "target")
    roles: dict[str, str] = {}
    for role, key in (("targets", "target"), ("clients", "client"), ("groups", "group")):
        name = getattr(source, key)
        if name is not None:
            if name in roles.values() and role != "groups":
                raise ConfigError(f"must be another column than data.target, but both are {name!r}", key)
            roles[role] = column(name, known, key)
    return roles


def require_columns(names: list[str], tables: list[NamedTable]) -> None:
    """Raise a ConfigError unless every table has these columns."""
    for table in tables:
        missing = [name for name in names if name not in table.rows.columns]
        if missing:
            there = some(missing[0], list(table.rows.columns))
            raise ConfigError(f"must have the columns of data.path, but lacks {missing[0]!r}; {there}", table.key)


def values_of(name: str, tables: list[NamedTable]) -> list[str]:
    """All values of a column to encode, in order."""
    found = sorted({str(value) for table in tables for value in with_values(table, name)})
    if len(found) > MOST_VALUES:
        rule = f"must have {MOST_VALUES} values at most, but {name!r} has {len(found)}; group them, or drop the column"
        raise ConfigError(rule, "categories")
    return found


def encoded(table: NamedTable, name: str, values: dict[str, list[str]]) -> NDArray[np.float32]:
    """A feature as one column of numbers, or as a column for each of its values."""
    if name not in values:
        return numbers(table, name)[:, None]
    texts = with_values(table, name).astype(str).to_numpy(dtype=str)
    return (texts[:, None] == np.array(values[name])).astype(np.float32)


def numbers(table: NamedTable, name: str) -> NDArray[np.float32]:
    """A column of numbers; a ConfigError shows the first value that is none."""
    import pandas as pd

    found = with_values(table, name)
    if not pd.api.types.is_numeric_dtype(found):  # booleans are numeric
        text = pd.to_numeric(found.astype(str), errors="coerce").isna().to_numpy()
        row = int(np.argmax(text))
        shown = f"{str(found.iloc[row])[:40]!r} in row {row + 1}"
        raise ConfigError(
            f"column {name!r} must be numbers, but has {shown}; drop it, or encode it with data.categories=[{name}]",
            table.key,
        )
    with np.errstate(over="ignore"):  # found below
        made = found.to_numpy(dtype=np.float32)
    wrong = np.flatnonzero(~np.isfinite(made))
    if len(wrong):
        row = int(wrong[0])
        shown = f"{found.iloc[row]} in row {row + 1}"
        raise ConfigError(f"column {name!r} must be finite, but has {shown}; correct or drop the row", table.key)
    return made


def plain_column(table: NamedTable, name: str) -> AnyArray:
    """A column as numpy has it: integers, booleans, floats or text."""
    import pandas as pd

    found = with_values(table, name)
    if pd.api.types.is_bool_dtype(found):
        return found.to_numpy(dtype=bool)
    if pd.api.types.is_integer_dtype(found):
        return found.to_numpy(dtype=np.int64)
    if pd.api.types.is_float_dtype(found):
        return found.to_numpy(dtype=np.float64)
    return found.astype(str).to_numpy(dtype=str)


def with_values(table: NamedTable, name: str) -> "Series":
    """A column, if it has a value in every row; else a ConfigError."""
    found = table.rows[name]
    if found.isna().any():
        row = int(np.argmax(found.isna().to_numpy()))
        count = int(found.isna().sum())
        raise ConfigError(
            f"column {name!r} must have a value in every row, but has none in row {row + 1} ({count} of {len(found)} "
            "lack one); fill them in, drop these rows, or drop the column",
            table.key,
        )
    return found
