"""Files of public data sets: fetched whole or not at all, and used only if their SHA-256 is right."""

import fcntl
import gzip
import hashlib
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from fedmbo_ray.core.errors import DownloadError
from fedmbo_ray.core.interruptions import at_stake

console = Console(stderr=True)


def torchvision_datasets() -> Any:
    """The module torchvision.datasets, also beside a CPU build of torch.

    The registry's torchvision is built for CUDA. Its C++ library does not load next to a CPU torch, and
    then its import fails because two operators that it registers fakes for were never declared.
    Declaring them is enough: nothing here calls them.
    """
    try:
        import torchvision.datasets
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        import torch

        library = torch.library.Library("torchvision", "FRAGMENT")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision.datasets
    return torchvision.datasets


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def problem_with(folder: Path, digests: dict[str, str]) -> str | None:
    """What keeps the files in `folder` from being used, None if they are all there and right."""
    for name, digest in digests.items():
        if not (folder / name).exists():
            return f"{name} is missing"
        if (found := file_digest(folder / name)) != digest:
            return f"{name} has the wrong SHA-256 ({found[:12]}…, not {digest[:12]}…)"
    return None


Way = Callable[[Path], None]  # puts the files into a scratch folder


def fetch(name: str, folder: Path, digests: dict[str, str], ways: dict[str, Way]) -> None:
    """Make sure that `folder` holds the files; tries each way in a scratch folder that replaces it when right."""
    try:
        with only_one(folder):
            _fetch(name, folder, digests, ways)
    except OSError as error:
        raise DownloadError(f"can't keep {name} in {folder}: {error.strerror or error}") from None


def _fetch(name: str, folder: Path, digests: dict[str, str], ways: dict[str, Way]) -> None:
    problem = problem_with(folder, digests)
    if problem is None:
        return
    tried = [f"{folder}: {problem}"]
    for way, get in ways.items():
        with scratch(folder) as here, console.status(f"{name}: downloading ({way})"):
            try:
                get(here)
                problem = problem_with(here, digests)
            except Exception as error:  # whatever one way raises, the next one may work
                problem = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            if problem is None:
                install(here, folder, digests)
                return
        tried.append(f"{way}: {problem}")
    raise DownloadError(
        f"{name} could not be downloaded. Tried: {'; '.join(tried)}. "
        f"Put these files into {folder} by hand: {', '.join(digests)}"
    )


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """In this context, only this process fetches into `folder`; others wait, and then find the files."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder beside `folder`, gone afterwards; leftovers of a killed download are cleared, too."""
    for leftover in folder.parent.glob(f".{folder.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)
    try:
        with at_stake():
            yield path
    finally:
        socket.setdefaulttimeout(timeout)
        shutil.rmtree(path, ignore_errors=True)


def install(here: Path, folder: Path, digests: dict[str, str]) -> None:
    """Move the checked files into place; each appears whole or not at all."""
    folder.mkdir(exist_ok=True)
    for name in digests:
        (here / name).replace(folder / name)


def from_torchvision(dataset: str, where: str) -> Way:
    """Let torchvision download; `where` is the folder in which it leaves the files."""

    def get(here: Path) -> None:
        getattr(torchvision_datasets(), dataset)(here, download=True)
        for file in (here / where).iterdir():
            if file.is_file() and file.parent != here:
                file.replace(here / file.name)
        for packed in here.glob("*-ubyte.gz"):
            with gzip.open(packed) as source, packed.with_suffix("").open("wb") as target:
                shutil.copyfileobj(source, target)

    return get
