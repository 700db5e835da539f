"""What is wrong with a user's data is said in one line: where, what, and what to do."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from own_files import blobs, table, value, write_images, write_saved
from quick_runs import run

from fedmbo_ray.data import tables

DEFAULT = ["target: kind", "client: clinic"]
NEEDED = ["a", "b", "c", "clinic", "kind"]


def said(data: str, *words: str) -> str:
    """What the command says when it refuses a config, which must be one line."""
    code, out, err = run(f"data={{{data}}}", *words, "--out", "/nowhere/at/all")
    assert (code, out) == (2, ""), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err.removeprefix("error: ").rstrip()


def changed(column: str, row: int, what: object) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        rows = table()[NEEDED].astype({column: object})
        rows.loc[row, column] = what
        rows.to_csv(file, index=False)

    return write


def with_columns(**columns: object) -> Callable[[Path], None]:
    return lambda file: table()[NEEDED].assign(**columns).to_csv(file, index=False)


def text(content: str) -> Callable[[Path], int]:
    return lambda file: file.write_text(content)


MISTAKES = {
    "nothing there": (lambda file: None, "", "data.path: must be a file, but there is no {file}"),
    "empty": (text(""), "", "data.path: must have rows, but {file} is empty"),
    "a header": (text("a,kind\n"), "", "data.path: must have rows, but {file} has a header alone"),
    "ragged": (
        text("a,kind\n1,x\n1,2,3,4\n"),
        "",
        "data.path: {file} can't be read as a table: Error tokenizing data. C error: Expected 2 fields",
    ),
    "other separator": (
        text("a;kind\n1;x\n"),
        "",
        "data.path: must have commas between columns, but {file} begins with 'a;kind'",
    ),
    "row numbers": (
        lambda file: table()[NEEDED].to_csv(file),
        "",
        "data.path: must have a name for every column, but column 1 of {file} has none; if it has row numbers",
    ),
    "many values": (
        with_columns(street=[f"s{i}" for i in range(240)]),
        "categories: [street]",
        "data.categories: must have 100 values at most, but 'street' has 240; group them, or drop the column",
    ),
    "no target": (
        with_columns(),
        "target: null",
        "data.target: is required: the column to predict; known: a, b",
    ),
    "unknown target": (
        with_columns(),
        "target: kinds",
        "data.target: unknown column 'kinds'; did you mean 'kind'? known: a, b, c, clinic, kind",
    ),
    "unknown client": (
        with_columns(),
        "client: clinics",
        "data.client: unknown column 'clinics'; did you mean 'clinic'?",
    ),
    "unknown category": (with_columns(), "categories: [colr]", "data.categories: unknown column 'colr'; known: a, b"),
    "encoded target": (
        with_columns(),
        "categories: [kind]",
        "data.categories: must be features, but 'kind' is the target",
    ),
    "no fraction": (
        with_columns(),
        "test: 1.5",
        "data.test: must be a fraction between 0 and 1, or a file",
    ),
    "many columns": (
        with_columns(**{f"x{i}": 1 for i in range(20)}),
        "client: klinic",
        "data.client: unknown column 'klinic'; did you mean 'clinic'? known: a, b, c, clinic, kind, x0, x1,",
    ),
    "one column twice": (
        with_columns(),
        "client: kind",
        "data.client: must be another column than data.target, but both are 'kind'",
    ),
    "text": (
        with_columns(bp=["120"] * 239 + ["12O"]),
        "",
        "data.path: column 'bp' must be numbers, but has '12O' in row 240; drop it, or encode it with data.categories=",
    ),
    "missing": (
        changed("b", 6, None),
        "",
        "data.path: column 'b' must have a value in every row, but has none in row 7 (1 of 240 lack one); fill them in",
    ),
    "missing target": (
        changed("kind", 0, None),
        "",
        "data.path: column 'kind' must have a value in every row, but has",
    ),
    "infinite": (changed("b", 6, "inf"), "", "data.path: column 'b' must be finite, but has inf in row 7; correct"),
    "constant": (with_columns(kind="ant"), "", "data.target: targets must have two labels or more, but all are 'ant'"),
    "constant number": (with_columns(kind=1.5), "", "data.target: targets must differ, but all are 1.5"),
    "one row": (
        changed("clinic", 3, "lonely"),
        "client: clinic",
        "data.partition: every client needs two rows or more, one to train and one to validate, but client 'lonely' of",
    ),
    "clients": (
        with_columns(),
        "client: clinic",
        "data.partition: rows.csv has 4 clients, but clients.num_clients is 50; set clients.num_clients=4",
    ),
    "text as numbers": (
        with_columns(),
        "client: clinic, predict: numbers",
        "data.predict: numbers are predicted, but a target is 'ant'",
    ),
    "size": (
        with_columns(),
        "size: [2, 2]",
        "data.size: is for data.name=images, huggingface alone, but the name is 'file'",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_tables(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_VALUES", 100)
    write, more, expected = MISTAKES[what]
    file = tmp_path / "rows.csv"
    write(file)
    words = ", ".join([more or "predict: null", *(each for each in DEFAULT if each.split(":")[0] not in more)])
    clients = ["clients.num_clients=5", "clients.cohort_size=2"] if what == "one row" else []
    assert said(f"name: file, path: {file}, {words}", *clients).startswith(expected.format(file=file))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"kind": ["dog"] * 240}, "data.test: test rows must have labels that are learned, but 'dog' is in no row to"),
        ({"a": None}, "data.test: must have the columns of data.path, but lacks 'a'; did you mean 'aa'?"),
        ({"b": ["x"] * 240}, "data.test: column 'b' must be numbers, but has 'x' in row 1"),
    ],
)
def test_a_test_file(columns: dict, expected: str, tmp_path: Path) -> None:
    rows = table()[["a", "b", "c", "kind"]]
    rows.to_csv(tmp_path / "train.csv", index=False)
    other = rows.rename(columns={"a": "aa"}) if "a" in columns else rows.assign(**columns)
    other.to_csv(tmp_path / "test.csv", index=False)
    assert said(f"name: file, path: {tmp_path}/train.csv, target: kind, test: {tmp_path}/test.csv").startswith(expected)


def test_a_file_of_another_name(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "rows.csv")
    near = said(f"name: file, path: {tmp_path}/row.csv, target: kind")
    assert near == f"data.path: must be a file, but there is no {tmp_path}/row.csv; did you mean 'rows.csv'?"
    assert said(f"name: file, path: {tmp_path}/rows.xlsx").startswith("data.path: must end in one of .csv, .csv.gz,")
    assert said("name: file") == "data.path: is required for data.name=file"


@pytest.mark.parametrize(
    ("arrays", "more", "expected"),
    [
        ({"inputs": 0}, "", "data.path: must have an array called targets, y, Y, y_train, labels, but has inputs"),
        ({"inputs": 0, "y": 1, "client": 1}, "", "data.path: unknown array 'client'; did you mean 'clients'?"),
        ({"inputs": 0, "y": 1}, "client: who", "data.client: unknown array 'who'; known: inputs, y"),
        ({"inputs": 0, "y": 2}, "", "data.path: arrays must be numbers or text, but 'y' is of Python objects"),
        ({"inputs": 3, "y": 1}, "", "data.path: inputs must be finite numbers, but inputs["),
        ({"inputs": 0, "y": 4}, "", "data.path: inputs have 240 rows, but targets has the shape (4,)"),
    ],
)
def test_arrays(arrays: dict[str, int], more: str, expected: str, tmp_path: Path) -> None:
    inputs, labels = blobs()
    holes = inputs.copy()
    holes[:, 1] = np.nan
    kinds = [inputs, labels, labels.astype(object), holes, np.arange(4) % 2]
    np.savez(tmp_path / "rows.npz", **{name: kinds[kind] for name, kind in arrays.items()})
    assert said(f"name: file, path: {tmp_path}/rows.npz, {more}").startswith(expected)


def test_a_file_that_is_no_npz(tmp_path: Path) -> None:
    (tmp_path / "rows.npz").write_bytes(b"PK, but no archive")
    assert said(f"name: file, path: {tmp_path}/rows.npz").startswith(f"data.path: {tmp_path}/rows.npz can't be read")


def test_images(tmp_path: Path) -> None:
    data = f"name: images, path: {tmp_path}/p"
    assert said(data) == f"data.path: must be a folder, but {tmp_path}/p is not there"
    (tmp_path / "p").mkdir()
    assert said(data).startswith(f"data.path: must have images in {tmp_path}/p/class/*.png, but there are none")
    write_images(tmp_path / "p", 30)
    assert said(f"{data}, client: who").startswith("data.client: must be `folder` for images")
    assert said(f"{data}, target: who").startswith("data.target: is for data.name=file, huggingface alone")
    (tmp_path / "p" / "bee" / "99.png").write_bytes(b"no picture")
    assert said(data).startswith(
        f"data.path: images must be readable, but {tmp_path}/p/bee/99.png is not: cannot identify"
    )
    (tmp_path / "p" / "bee" / "99.png").unlink()
    write_images(tmp_path / "p", 3, size=8)
    expected = (
        f"data.path: images must be of one size, but {tmp_path}/p/ant/0.png has 8×8 pixels and {tmp_path}/p/ant/12.png"
    )
    assert said(data).startswith(f"{expected} 6×6; set data.size=[8, 8]")
    write_images(tmp_path / "q", 30, clients=2)
    assert said(f"name: images, path: {tmp_path}/q").endswith("set data.client=folder if it is folder/client/class")


def test_saved_data_sets(tmp_path: Path) -> None:
    data = f"name: huggingface, path: {tmp_path}"
    (tmp_path / "e").mkdir()
    assert said(f"{data}/e").startswith(f"data.path: {tmp_path}/e can't be read as what save_to_disk writes: [Errno 2]")
    columns, features = {"text": ["a"] * 8, "label": [0, 1] * 4}, {"text": value("string"), "label": value("int64")}
    write_saved(tmp_path / "t", columns, features)
    assert "but 'text' is text; tokenize it: a column input_ids of lists of integers" in said(f"{data}/t")
    assert said(f"{data}/t, target: lable").startswith("data.target: unknown column 'lable'; did you mean 'label'?")
    features["label"] = {"names": ["no", "yes"], "_type": "ClassLabel"}
    columns = {"a": [0.5] * 8, "label": [0, 1, -1, 0] * 2}
    write_saved(tmp_path / "u", columns, {"a": value("float32"), "label": features["label"]})
    assert said(f"{data}/u").startswith("data.target: labels must be known, but 'label' is -1 in some rows")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["validation"]}')
    assert said(data).startswith("data.path: must have a split `train`, but has validation")
