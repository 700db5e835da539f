"""Data sets that Hugging Face's `datasets` has saved to disk, read without that package."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedmbo_ray.core.errors import ConfigError, first_line
from fedmbo_ray.data.dataset import AnyArray, Dataset
from fedmbo_ray.data.pictures import ImageFile, stacked
from fedmbo_ray.data.reading import Source, column, existing_folder, finished, some
from fedmbo_ray.data.tables import NamedTable, plain_column
from fedmbo_ray.data.tables import arrays_of as arrays_of_table

if TYPE_CHECKING:
    import pyarrow as pa

TARGETS = ("label", "labels", "target")
TOKENS = "input_ids"  # what tokenizers call them
LISTS = ("Sequence", "List", "LargeList", "Array2D", "Array3D", "Array4D", "Array5D")


class Saved(NamedTuple):
    """The rows of one split, and what its columns are."""

    rows: "pa.Table"
    features: dict[str, Any]
    key: str


def read_saved(source: Source) -> Dataset:
    """The data set in a folder that `save_to_disk` has written."""
    root = existing_folder(source.place, "path")
    places = {"": (root, "path")}
    if (root / "dataset_dict.json").is_file():
        places = splits_of(root)
    if isinstance(source.test, Path):
        places["test_"] = (existing_folder(source.test, "test"), "test")
    parts = {prefix: saved(folder, key) for prefix, (folder, key) in places.items()}
    target = target_of(source, parts[""])
    source = source._replace(target=target)
    others = [name for name in parts[""].features if name not in (target, source.client, source.group)]
    name = one_input(others, parts[""].features)
    if name is None:
        arrays = arrays_of_table(source, [table_of(part, others, source) for part in parts.values()])
    else:
        arrays = arrays_of(source, parts, name)
    made = finished(source, arrays)
    names = parts[""].features[target].get("names")
    if not names:
        return made
    if "-1" in made.class_names:
        raise ConfigError(
            f"labels must be known, but {target!r} is -1 in some rows; filter them out, or set data.test=0.2",
            "target",
        )
    return replace(made, class_names=tuple(names[int(each)] for each in made.class_names))


def splits_of(root: Path) -> dict[str, tuple[Path, str]]:
    """The folders of the rows to learn from and, if there are any, of those to test on."""
    names = json.loads((root / "dataset_dict.json").read_text())["splits"]
    if "train" not in names:
        raise ConfigError(
            f"must have a split `train`, but has {', '.join(names)}; give the folder of one split", "path"
        )
    found = {"": (root / "train", "path")}
    return found | ({"test_": (root / "test", "path")} if "test" in names else {})


def saved(folder: Path, key: str) -> Saved:
    """The rows of one split; its files are streams in Arrow's format."""
    import pyarrow as pa  # takes a moment

    try:
        state = json.loads((folder / "state.json").read_text())
        features = json.loads((folder / "dataset_info.json").read_text())["features"]
        files = [folder / Path(each["filename"]).name for each in state["_data_files"]]
        tables = [pa.ipc.open_stream(pa.memory_map(str(file))).read_all() for file in files]
        rows = pa.concat_tables(tables)
    except (OSError, ValueError, KeyError, TypeError) as error:  # pyarrow's errors are ValueErrors
        raise ConfigError(f"{folder} can't be read as what save_to_disk writes: {first_line(error)}", key) from None
    if not len(rows):
        raise ConfigError(f"must have rows, but {folder} has none", key)
    return Saved(rows, features, key)


def target_of(source: Source, part: Saved) -> str:
    """The column to predict: the one that the config names, or one that is called so."""
    known = list(part.features)
    for name, key in ((source.client, "client"), (source.group, "group"), (source.target, "target")):
        if name is not None:
            column(name, known, key)
    found = source.target or next((name for name in TARGETS if name in known), None)
    if found is None:
        raise ConfigError(f"is required: the column to predict; {some('', known)}", "target")
    return found


def one_input(others: list[str], features: dict[str, Any]) -> str | None:
    """The column that is the input: the tokens, the image or the list; None if the features are columns of numbers."""
    if TOKENS in others:
        return TOKENS
    for kinds in (("Image",), LISTS):
        found = [name for name in others if features[name].get("_type") in kinds]
        if len(found) > 1:
            raise ConfigError(
                f"must have one input, but {' and '.join(found)} could be it; leave out all but one (remove_columns)",
                "path",
            )
        if found:
            return found[0]
    return None


def table_of(part: Saved, others: list[str], source: Source) -> NamedTable:
    """The columns of a split as a table."""
    kinds = {name: str(part.features[name].get("dtype")) for name in others}
    texts = [name for name in others if "string" in kinds[name] and name not in source.categories]
    if texts and len(texts) == len(others):
        raise ConfigError(
            f"must have an input of numbers, tokens or an image, but {texts[0]!r} is text; tokenize it: a column "
            f"{TOKENS} of lists of integers",
            part.key,
        )
    return NamedTable(part.rows.to_pandas(), part.key)


def arrays_of(source: Source, parts: dict[str, Saved], name: str) -> dict[str, AnyArray]:
    """One column as inputs, by the names that `dataset_of` takes."""
    inputs = pictures_in(parts, name, source) if parts[""].features[name]["_type"] == "Image" else lists(parts, name)
    arrays: dict[str, AnyArray] = {}
    start = 0
    roles = (("targets", source.target), ("clients", source.client), ("groups", source.group))
    for prefix, part in parts.items():
        arrays[f"{prefix}inputs"] = inputs[start : start + len(part.rows)]
        start += len(part.rows)
        for role, each in roles:
            if each is not None and (role != "clients" or not prefix):
                column(each, part.rows.column_names, part.key)
                arrays[prefix + role] = plain_column(NamedTable(part.rows.select([each]).to_pandas(), part.key), each)
    return arrays


def pictures_in(parts: dict[str, Saved], name: str, source: Source) -> AnyArray:
    """The images of all splits."""
    found = []
    for prefix, part in parts.items():
        for row, cell in enumerate(part.rows[name].to_pylist()):
            what = f"{prefix}{name} in row {row + 1}"
            if cell is None or (cell.get("bytes") is None and not cell.get("path")):
                raise ConfigError(f"images must be there, but {what} is missing; filter such rows out", part.key)
            found.append(ImageFile(what, cell["bytes"] if cell.get("bytes") is not None else Path(cell["path"])))
    return stacked(found, source.size, "path")


def lists(parts: dict[str, Saved], name: str) -> AnyArray:
    """The lists of all splits: integers are tokens, filled up with 0; floats must be equally many."""
    rows = [each for part in parts.values() for each in part.rows[name].to_pylist()]
    missing = next((row for row, each in enumerate(rows) if not each), None)
    if missing is not None:
        raise ConfigError(f"{name} must have values in every row, but row {missing + 1} has none", "path")
    longest = max(map(len, rows))
    try:
        if isinstance(rows[0][0], int):
            return np.array([each + [0] * (longest - len(each)) for each in rows], dtype=np.int64)
        return np.array(rows, dtype=np.float32)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} must have equally many numbers in every row, and no gaps", "path") from None
