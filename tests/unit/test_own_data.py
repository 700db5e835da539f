"""Data that users bring: every kind is read and learned from, and every mistake is one line."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from own_files import CLASSES, blobs, table, value, write_images, write_saved
from quick_runs import last_record, run
from torch import nn

from fedmbo_ray import TwoLosses
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.data.held_out import held_out
from fedmbo_ray.data.sources import Source, read_source

SHORT = ["rounds=25", "clients.num_clients=4", "clients.cohort_size=4", "problem.backbone.width=16"]
DROPPED = ["colour", "sex", "price"]


def write(rows: pd.DataFrame, path: Path) -> Path:
    rows.to_parquet(path) if path.suffix == ".parquet" else rows.to_csv(
        path, index=False, sep="\t" if ".tsv" in path.name else ","
    )
    return path


def accuracy(tmp_path: Path, data: str, *words: str) -> float:
    return last_record(f"data={{{data}}}", *SHORT, *words, "--out", str(tmp_path / "run"))["test_accuracy"]


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "parquet"])
def test_a_table_is_learned(ending: str, tmp_path: Path) -> None:
    file = write(table().drop(columns=DROPPED), tmp_path / f"rows.{ending}")
    assert accuracy(tmp_path, f"name: file, path: {file}, target: kind, client: clinic") > 0.9


def test_the_columns_of_a_table(tmp_path: Path) -> None:
    file = write(table(), tmp_path / "rows.csv")
    made = read_source(Source("file", file, "kind", "clinic", "sex", categories=("colour",)))
    assert made.name == "rows.csv"
    assert made.train_inputs.shape == (192, 7)  # a, b, c, smokes, two colours, price
    assert made.train_inputs.dtype == np.float32
    assert (made.train_inputs[:, 4:6].sum(1) == 1).all()
    assert (made.class_names, made.client_names) == (CLASSES, ("east", "north", "south", "west"))
    assert made.group_names == ("f", "m")
    assert made.test_groups is not None
    assert len(made.test_groups) == 48


def test_numbers_to_predict(tmp_path: Path) -> None:
    rows = table().assign(age=np.arange(240))
    file = write(rows.drop(columns=[*DROPPED, "kind", "clinic"]), tmp_path / "rows.csv")
    with pytest.raises(ConfigError, match=r"target: labels must repeat, .* or set data\.predict=numbers for a file"):
        read_source(Source("file", file, "age"))
    assert read_source(Source("file", file, "age", predict="numbers")).num_classes == 0
    assert read_source(Source("file", file, "smokes")).class_names == ("False", "True")


def ridge(data, width: int = 4) -> TwoLosses:
    features, head = nn.Linear(data.num_inputs, width), nn.Linear(width, 1)

    def loss(features: nn.Module, head: nn.Module, batch):
        return (head(features(batch.inputs))[:, 0] - batch.targets) ** 2

    def lower(features: nn.Module, head: nn.Module, batch):
        return loss(features, head, batch) + 0.01 * sum((part**2).sum() for part in head.parameters())

    return TwoLosses(features, head, loss, lower)


def test_numbers_are_learned(tmp_path: Path) -> None:
    file = write(table().drop(columns=["colour", "sex", "kind"]), tmp_path / "rows.csv")
    words = [
        f"data={{name: file, path: {file}, target: price, client: clinic}}",
        "problem={name: 'test_own_data:ridge'}",
    ]
    words += [
        "algorithm.lower.step_size=0.02",
        "algorithm.step_size=0.0005",
        "rounds=20",
        "record.every=20",
        *SHORT[1:3],
    ]
    code, out, err = run(*words, *SHORT[1:3], "--out", str(tmp_path / "run"), "--json")
    assert code == 0, err
    first = json.loads((tmp_path / "run" / "records.jsonl").read_text().splitlines()[0])
    assert json.loads(out)["upper_loss"] < 0.2 * first["upper_loss"]


def test_a_file_with_rows_to_test_on(tmp_path: Path) -> None:
    rows = table().drop(columns=[*DROPPED, "clinic"])
    train, test = write(rows[:200], tmp_path / "train.csv"), write(rows[200:], tmp_path / "test.csv")
    made = read_source(Source("file", train, "kind", test=test))
    assert (len(made.train_targets), len(made.test_targets)) == (200, 40)


@pytest.mark.parametrize("names", [("inputs", "targets"), ("X", "y"), ("x_train", "clinic")])
def test_arrays_are_learned(names: tuple[str, str], tmp_path: Path) -> None:
    inputs, labels = blobs()
    np.savez(tmp_path / "rows.npz", **dict(zip(names, (inputs, labels), strict=True)), place=np.arange(240) % 4)
    more = "target: clinic, " if names[1] == "clinic" else ""
    assert accuracy(tmp_path, f"name: file, path: {tmp_path}/rows.npz, {more}client: place") > 0.9


def test_arrays_to_test_on(tmp_path: Path) -> None:
    inputs, labels = blobs()
    np.savez(tmp_path / "a.npz", X=inputs[:200], y=labels[:200], X_test=inputs[200:], y_test=labels[200:])
    np.savez(tmp_path / "b.npz", X=inputs[:50], y=labels[:50])
    assert len(read_source(Source("file", tmp_path / "a.npz")).test_targets) == 40
    assert len(read_source(Source("file", tmp_path / "a.npz", test=0.1)).test_targets) == 20
    assert len(read_source(Source("file", tmp_path / "b.npz", test=tmp_path / "b.npz")).test_targets) == 50


def test_images_are_learned(tmp_path: Path) -> None:
    write_images(tmp_path / "plain")
    (tmp_path / "plain" / "ant" / "._0.png").write_bytes(b"left behind by a Mac")
    assert accuracy(tmp_path, f"name: images, path: {tmp_path}/plain") > 0.9


def test_folders_of_images(tmp_path: Path) -> None:
    write_images(tmp_path / "by_client", clients=4)
    made = read_source(Source("images", tmp_path / "by_client", client="folder"))
    assert made.client_names == ("client0", "client1", "client2", "client3")
    assert made.class_names == CLASSES
    assert (made.train_inputs.shape[1:], made.train_inputs.dtype) == ((1, 6, 6), np.uint8)
    write_images(tmp_path / "parts" / "train", 30)
    write_images(tmp_path / "parts" / "test", 12, size=8)
    made = read_source(Source("images", tmp_path / "parts", size=(5, 4)))
    assert (made.train_inputs.shape, made.test_inputs.shape) == ((30, 1, 5, 4), (12, 1, 5, 4))


def test_colours_make_three_channels(tmp_path: Path) -> None:
    from PIL import Image

    write_images(tmp_path, 12)
    Image.new("RGB", (6, 6), (1, 2, 3)).save(tmp_path / "ant" / "red.png")
    made = read_source(Source("images", tmp_path))
    assert made.train_inputs.shape[1:] == (3, 6, 6)
    assert [1, 2, 3] in [*made.train_inputs[:, :, 0, 0].tolist(), *made.test_inputs[:, :, 0, 0].tolist()]


def png(row: int) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("L", (4, 5), 20 + 70 * (row % 3)).save(buffer, "png")
    return buffer.getvalue()


def test_a_saved_data_set_of_images(tmp_path: Path) -> None:
    features = {"image": {"_type": "Image"}, "label": {"names": ["zebra", "ant", "cat"], "_type": "ClassLabel"}}
    for split, rows in (("train", 60), ("test", 12)):
        images = [{"bytes": png(row), "path": None} for row in range(rows)]
        write_saved(tmp_path / "d" / split, {"image": images, "label": [row % 3 for row in range(rows)]}, features)
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    made = read_source(Source("huggingface", tmp_path / "d"))
    assert (made.train_inputs.shape, len(made.test_targets)) == ((60, 1, 5, 4), 12)
    assert made.class_names == ("zebra", "ant", "cat")
    assert made.train_targets[:4].tolist() == [0, 1, 2, 0]
    assert accuracy(tmp_path, f"name: huggingface, path: {tmp_path}/d") == 1.0


def test_a_saved_data_set_of_tokens(tmp_path: Path) -> None:
    tokens = [[1 + row % 3] * (2 + row % 2) for row in range(30)]
    columns = {"input_ids": tokens, "text": ["so"] * 30, "label": [row % 3 for row in range(30)]}
    features = {"input_ids": {"feature": value("int32"), "_type": "List"}, "text": value("string")}
    write_saved(tmp_path / "d", columns, features | {"label": value("int64")})
    made = read_source(Source("huggingface", tmp_path / "d"))
    assert (made.train_inputs.shape, made.train_inputs.dtype) == ((24, 3), np.int64)
    assert made.train_inputs.min() == 0  # what is filled up


def test_a_saved_data_set_of_numbers(tmp_path: Path) -> None:
    rows = table()[["a", "b", "clinic", "price", "kind"]]
    features = {name: value("string" if name in ("clinic", "kind") else "float64") for name in rows}
    write_saved(tmp_path / "d", rows.to_dict("list"), features)
    made = read_source(Source("huggingface", tmp_path / "d", "kind", "clinic"))
    assert (made.train_inputs.shape, made.num_clients) == ((192, 3), 4)
    with pytest.raises(ConfigError, match="target: is required: the column to predict; known: a, b"):
        read_source(Source("huggingface", tmp_path / "d"))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_table_of_numbers_comes_back(tmp_path: Path, data: st.DataObject) -> None:
    rows = data.draw(st.integers(8, 40))
    numbers = st.floats(-1e6, 1e6, width=32) | st.integers(-1000, 1000)
    values = data.draw(st.lists(st.tuples(numbers, numbers), min_size=rows, max_size=rows))
    frame = pd.DataFrame(values, columns=["p", "q"]).assign(
        row=np.arange(rows), kind=["u", "v"] * (rows // 2) + ["u"] * (rows % 2)
    )
    made = read_source(Source("file", write(frame, tmp_path / "rows.csv"), "kind"))
    every = np.concatenate([made.train_inputs, made.test_inputs])
    back = every[np.argsort(every[:, 2])][:, :2]
    assert np.array_equal(back, frame[["p", "q"]].to_numpy(np.float32))


@given(st.lists(st.integers(0, 5), min_size=3, max_size=60), st.floats(0.05, 0.9))
def test_every_client_keeps_two_rows(clients: list[int], test: float) -> None:
    owners = np.array(clients)
    try:
        train, rest = held_out(len(owners), test, owners)
    except ConfigError:
        assert np.bincount(owners).max() <= 2
        return
    assert sorted([*train, *rest]) == list(range(len(owners)))
    assert (np.bincount(owners[train], minlength=6) >= np.minimum(np.bincount(owners, minlength=6), 2)).all()
