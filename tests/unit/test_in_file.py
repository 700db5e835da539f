"""Large arrays stay in their file: the same bits as in memory, and only the file's name travels."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from own_files import blobs
from quick_runs import last_record, run

from fedmbo_ray.config.schema import DataConfig
from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.data import in_file
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.data.in_file import InFile
from fedmbo_ray.data.sources import Source, read_source
from fedmbo_ray.runs.build import federate


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every array is large enough to stay in its file."""
    monkeypatch.setattr(in_file, "LARGE", 0)


def write(folder: Path) -> Path:
    inputs, labels = blobs()
    np.savez(folder / "rows.npz", clients=np.arange(240) % 4, inputs=inputs, targets=labels)
    return folder / "rows.npz"


def test_the_same_data_as_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source("file", write(tmp_path))
    loaded = read_source(source)
    monkeypatch.setattr(in_file, "LARGE", 0)
    here = read_source(source)
    assert isinstance(loaded.train_inputs, np.ndarray)
    assert isinstance(here.train_inputs, InFile)
    assert isinstance(here.test_inputs, InFile)
    assert here.digest == loaded.digest
    assert np.array_equal(np.asarray(here.train_inputs), loaded.train_inputs)


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_a_run_from_a_file_that_stays_where_it_is(kind: str, tmp_path: Path, small: None) -> None:
    inputs, labels = blobs()
    np.save(tmp_path / "rows.npy", inputs)
    np.save(tmp_path / "labels.npy", labels)
    write(tmp_path)
    more = ", target: labels.npy" if kind == "npy" else ""
    words = [f"data={{name: file, path: {tmp_path}/rows.{kind}, partition: iid{more}}}", "rounds=25"]
    words += ["clients.num_clients=4", "problem.backbone.width=16"]
    assert last_record(*words, "--out", str(tmp_path / "run"))["test_accuracy"] > 0.9


def test_only_the_name_of_the_file_travels(tmp_path: Path, small: None) -> None:
    config = DataConfig(name="file", path=write(tmp_path))
    clients = federate(config, 0, 4).clients.astype(torch.float32)
    sent = pickle.dumps(clients)
    assert isinstance(clients.inputs, InFile)
    assert not clients.ready
    assert len(pickle.dumps(clients.inputs)) < 500 + 8 * len(clients.inputs)  # the numbers of rows
    seeds = draw_seeds(stream(0), 2)
    ask = (np.array([0, 3]), seeds, Draw("train", 5), torch.device("cpu"))
    there, later = pickle.loads(sent), pickle.loads(sent)  # noqa: S301
    assert torch.equal(there.draw(*ask).inputs, clients.draw(*ask).inputs)
    config.path.unlink()
    with pytest.raises(RunFailed, match=r"^data.path must be on all nodes, but .* has no .*rows.npz"):
        later.draw(*ask)


def test_what_is_compressed_or_of_another_kind_is_read(tmp_path: Path, small: None) -> None:
    inputs, labels = blobs()
    np.savez_compressed(tmp_path / "a.npz", inputs=inputs, targets=labels)
    np.savez(tmp_path / "b.npz", inputs=np.asfortranarray(inputs), targets=labels)
    np.savez(tmp_path / "c.npz", inputs=inputs.astype(np.float16), targets=labels)
    for name in "abc":
        assert isinstance(read_source(Source("file", tmp_path / f"{name}.npz")).train_inputs, np.ndarray)


def test_a_hole_in_a_large_file_is_found(tmp_path: Path, small: None) -> None:
    inputs, labels = blobs()
    inputs[100, 2] = np.nan
    np.savez(tmp_path / "rows.npz", inputs=inputs, targets=labels)
    code, _, err = run(f"data={{name: file, path: {tmp_path}/rows.npz}}", "--out", str(tmp_path / "run"))
    assert code == 2
    assert "inputs must be finite numbers, but" in err


def test_rows_in_any_order_and_shape(tmp_path: Path) -> None:
    inputs = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
    np.save(tmp_path / "a.npy", inputs)
    offset = (tmp_path / "a.npy").stat().st_size - inputs.nbytes
    array = InFile(tmp_path / "a.npy", offset, inputs.shape, "float32")
    for rows in (np.array([[3, 4, 5], [5, 4, 9]]), np.array([], dtype=np.int64), np.arange(10), np.array([7, 7])):
        assert np.array_equal(array.take(rows), inputs.take(rows, axis=0))
        few = array.picked(np.array([9, 2, 3, 0, 1, 8, 7, 5, 6, 4]))
        assert np.array_equal(few.take(rows), inputs[few.rows].take(rows, axis=0))
    assert array[4, 1, 2] == inputs[4, 1, 2]
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-20])
    with pytest.raises(RunFailed, match="has become shorter while it was used"):
        array.take(np.array([9]))
