"""Large arrays that stay in their file: every process of a node opens it, and they share what has been read."""

import math
import mmap
import socket
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray.core.errors import RunFailed

LARGE = 2**28  # bytes; a smaller array is read at once, which makes draws faster
KINDS = ("uint8", "float32", "float64", "int64")  # what clients can use as it is


class Mapped:
    """Some rows of an array in a file, read when they are asked for. Pickled, it is the name of the file."""

    def __init__(
        self, path: Path, offset: int, shape: tuple[int, ...], dtype: Any, rows: NDArray[np.int64] | None = None
    ) -> None:
        self.path, self.offset, self.whole, self.rows = path, offset, shape, rows
        self.dtype = np.dtype(dtype)
        self.shape = shape if rows is None else (len(rows), *shape[1:])
        self._open: np.memmap | None = None

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return Mapped, (self.path, self.offset, self.whole, str(self.dtype), self.rows)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def array(self) -> np.memmap:
        """All rows of the file, opened in this process."""
        if self._open is None:
            needed = self.offset + math.prod(self.whole) * self.dtype.itemsize
            if not self.path.is_file() or self.path.stat().st_size < needed:
                raise RunFailed(
                    f"data.path must be on all nodes, but {socket.gethostname()} has no {self.path}, or not all of it; "
                    "copy it there, or keep it in a folder that all nodes share"
                )
            self._open = np.memmap(self.path, self.dtype, "r", self.offset, self.whole)
        return self._open

    def picked(self, rows: NDArray[np.int64]) -> "Mapped":
        """Some of its rows, still in the file."""
        return Mapped(self.path, self.offset, self.whole, self.dtype, rows if self.rows is None else self.rows[rows])

    def take(self, rows: NDArray[np.int64], axis: int = 0) -> NDArray[Any]:
        """Copies of rows, in an array of the shape of `rows` and of a row."""
        return np.asarray(self.array.take(rows if self.rows is None else self.rows[rows], axis=axis))

    def __getitem__(self, index: Any) -> Any:
        """A copy of a slice of rows, or one entry."""
        if isinstance(index, slice):
            return self.take(np.arange(*index.indices(len(self))))
        row, *rest = index
        return self.array[(row if self.rows is None else self.rows[row], *rest)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or self.dtype, copy=False)

    def release(self) -> None:
        """Give back the memory of what this process has read; the file stays in the system's cache."""
        if self._open is not None:
            self._open._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def in_archive(path: Path, name: str) -> Mapped | None:
    """An array of an npz file, if it is large and was stored without compression; else None."""
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED or member.file_size < LARGE:
        return None
    with path.open("rb") as file:
        file.seek(member.header_offset)
        names, extra = struct.unpack("<HH", file.read(30)[26:])
    return at_offset(path, member.header_offset + 30 + names + extra)


def at_offset(path: Path, start: int = 0) -> Mapped | None:
    """The array whose npy header begins there, if it is large and can be used as it is; else None."""
    with path.open("rb") as file:
        file.seek(start)
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        offset = file.tell()
    large = math.prod(shape) * dtype.itemsize >= LARGE
    usable = large and str(dtype) in KINDS and len(shape) > 1 and not fortran
    return Mapped(path, offset, shape, dtype) if usable else None
