"""Small data sets of a user's own, written in every format that can be read."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

CLASSES = ("ant", "bee", "cat")


def blobs(rows: int = 240) -> tuple[np.ndarray, np.ndarray]:
    """Points around three corners, and which corner: easy to learn."""
    rng = np.random.default_rng(0)
    labels = np.arange(rows) % 3
    return (4 * np.eye(3)[labels] + rng.normal(size=(rows, 3))).astype(np.float32), labels


def table(rows: int = 240) -> pd.DataFrame:
    """Those points with their class as text, a clinic for every row, a group, a truth value and a number."""
    inputs, labels = blobs(rows)
    made = pd.DataFrame(inputs, columns=["a", "b", "c"])
    made["smokes"] = labels > 0
    made["colour"] = np.array(["red", "blue"])[np.arange(rows) % 2]
    made["clinic"] = np.array(["north", "south", "east", "west"])[np.arange(rows) % 4]
    made["sex"] = np.array(["f", "m"])[np.arange(rows) // 2 % 2]
    made["price"] = inputs @ np.array([1.0, 2.0, 3.0])
    made["kind"] = np.array(CLASSES)[labels]
    return made


def write_images(folder: Path, rows: int = 60, clients: int = 0, size: int = 6) -> None:
    """Grey pictures, each class bright in another corner: folder/class/0.png, or folder/client/class/0.png."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for row in range(rows):
        pixels = rng.integers(0, 60, (size, size), dtype=np.uint8)
        label = row % 3
        pixels[size // 2 * (label // 2) :, size // 2 * (label % 2) :][: size // 2, : size // 2] += 150
        place = folder / (f"client{row // 3 % clients}" if clients else "") / CLASSES[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{row}.png")


def write_saved(folder: Path, columns: dict[str, list], features: dict[str, dict]) -> None:
    """A data set as `datasets.Dataset.save_to_disk` (5.2) lays it out, in two files."""
    import pyarrow as pa

    folder.mkdir(parents=True)
    rows = pa.table(columns)
    names = [f"data-0000{i}-of-00002.arrow" for i in range(2)]
    half = len(rows) // 2
    for name, part in zip(names, (rows[:half], rows[half:]), strict=True):
        with pa.ipc.new_stream(str(folder / name), rows.schema) as stream:
            stream.write_table(part)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))


def value(dtype: str) -> dict:
    return {"dtype": dtype, "_type": "Value"}
