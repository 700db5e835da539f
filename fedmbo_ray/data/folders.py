"""Folders of images of users' own: one folder for each class, maybe inside one for each client."""

from pathlib import Path

import numpy as np

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.data.dataset import AnyArray, Dataset
from fedmbo_ray.data.pictures import ImageFile, stacked
from fedmbo_ray.data.reading import Source, existing_folder, finished

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def read_folder(source: Source) -> Dataset:
    """The data set in folder/class/*, or in folder/train/class/* and folder/test/class/*.

    With `client: folder` there is one level more, the client's name before the class's.
    """
    if source.client not in (None, "folder"):
        raise ConfigError(f"must be `folder` for images: folder/client/class/*.png, but is {source.client!r}", "client")
    root = existing_folder(source.place, "path")
    parts = {"": (root, "path")}
    if {"train", "test"} <= {each.name for each in inside(root)}:
        parts = {"": (root / "train", "path"), "test_": (root / "test", "path")}
    if isinstance(source.test, Path):
        parts["test_"] = (existing_folder(source.test, "test"), "test")
    found = {prefix: listed(folder, source.client is not None, key) for prefix, (folder, key) in parts.items()}
    every = [picture for pictures, _, _ in found.values() for picture in pictures]
    inputs = stacked(every, source.size, "path")  # all at once: of one size, all grey or all in colour
    arrays: dict[str, AnyArray] = {}
    start = 0
    for prefix, (pictures, classes, clients) in found.items():
        arrays[f"{prefix}inputs"] = inputs[start : start + len(pictures)]
        arrays[f"{prefix}targets"] = np.array(classes)
        if clients and not prefix:
            arrays["clients"] = np.array(clients)
        start += len(pictures)
    return finished(source, arrays)


def listed(folder: Path, by_client: bool, key: str) -> tuple[list[ImageFile], list[str], list[str]]:
    """The images below a folder in order of their names, the class of each, and the client of each if there are any."""
    pictures, classes, clients = [], [], []
    depth = 2 if by_client else 1
    levels = "client/class/*.png" if by_client else "class/*.png"
    for path in sorted(each for each in folder.rglob("*") if each.suffix.lower() in ENDINGS and each.is_file()):
        *above, _ = inner = path.relative_to(folder).parts
        if any(part.startswith((".", "__MACOSX")) for part in inner):  # what systems and editors leave behind
            continue
        if len(above) != depth:
            hint = "; set data.client=folder if it is folder/client/class" if len(above) == 2 else ""
            raise ConfigError(f"images must be in {folder}/{levels}, but there is {path}{hint}", key)
        pictures.append(ImageFile(str(path), path))
        classes.append(above[-1])
        if by_client:
            clients.append(above[0])
    if not pictures:
        raise ConfigError(f"must have images in {folder}/{levels}, but there are none ({', '.join(ENDINGS)})", key)
    return pictures, classes, clients


def inside(folder: Path) -> list[Path]:
    """The folders in a folder."""
    return sorted(each for each in folder.iterdir() if each.is_dir())
