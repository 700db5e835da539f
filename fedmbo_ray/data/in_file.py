"""Large arrays that stay in their file: every process reads rows as it needs them.

The system caches the file once for all processes of a node. Rows are read instead of mapped into memory: a process's
memory does not grow, and a file that is cut off is an error and not a crash.
"""

import math
import os
import socket
import struct
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray.core.errors import RunFailed

LARGE = 2**28  # bytes; a smaller array is read at once, which makes draws faster
KINDS = ("uint8", "float32", "float64", "int64")  # what clients can use as it is


class InFile:
    """Some rows of an array in a file, read when they are asked for. Pickled, it is the name of the file."""

    def __init__(
        self, path: Path, offset: int, shape: tuple[int, ...], dtype: Any, rows: NDArray[np.int64] | None = None
    ) -> None:
        self.path, self.offset, self.whole, self.rows = path, offset, shape, rows
        self.dtype = np.dtype(dtype)
        self.shape = shape if rows is None else (len(rows), *shape[1:])
        self._file: BinaryIO | None = None

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return InFile, (self.path, self.offset, self.whole, str(self.dtype), self.rows)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def picked(self, rows: NDArray[np.int64]) -> "InFile":
        """Some of its rows, still in the file."""
        return InFile(self.path, self.offset, self.whole, self.dtype, rows if self.rows is None else self.rows[rows])

    def take(self, rows: NDArray[np.int64], axis: int = 0) -> NDArray[Any]:
        """Copies of rows, in an array of the shape of `rows` and of a row; neighbours are read together."""
        assert axis == 0
        wanted = (rows if self.rows is None else self.rows[rows]).reshape(-1)
        found = np.empty((len(wanted), *self.whole[1:]), dtype=self.dtype)
        if not len(wanted):
            return found.reshape(*rows.shape, *self.whole[1:])
        ends = [*(np.flatnonzero(np.diff(wanted) != 1) + 1).tolist(), len(wanted)]
        size = math.prod(self.whole[1:]) * self.dtype.itemsize
        start = 0
        for end, place in zip(ends, (self.offset + wanted[[0, *ends[:-1]]] * size).tolist(), strict=True):
            self._fill(found[start:end], place)
            start = end
        return found.reshape(*rows.shape, *self.whole[1:])

    def _fill(self, rows: NDArray[Any], place: int) -> None:
        """Read what is there in the file."""
        if self._file is None:
            self._file = self._opened()
        done = os.preadv(self._file.fileno(), [rows.data], place)
        while done < rows.nbytes:  # the system reads two gigabytes at most
            more = os.preadv(self._file.fileno(), [rows.data.cast("B")[done:]], place + done)
            if not more:
                raise RunFailed(f"{self.path} has become shorter while it was used; put it back and use --resume")
            done += more

    def _opened(self) -> BinaryIO:
        needed = self.offset + math.prod(self.whole) * self.dtype.itemsize
        try:
            file = self.path.open("rb", buffering=0)
            if os.fstat(file.fileno()).st_size >= needed:
                return file
        except OSError:
            pass
        raise RunFailed(
            f"data.path must be on all nodes, but {socket.gethostname()} has no {self.path}, or not all of it; "
            "copy it there, or keep it in a folder that all nodes share"
        )

    def __getitem__(self, index: Any) -> Any:
        """A copy of a slice of rows, or one entry."""
        if isinstance(index, slice):
            return self.take(np.arange(*index.indices(len(self))))
        row, *rest = index
        return self[row : row + 1][(0, *rest)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or self.dtype, copy=False)


def in_archive(path: Path, name: str) -> InFile | None:
    """An array of an npz file, if it is large and was stored without compression; else None."""
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED or member.file_size < LARGE:
        return None
    with path.open("rb") as file:
        file.seek(member.header_offset)
        names, extra = struct.unpack("<HH", file.read(30)[26:])
    return at_offset(path, member.header_offset + 30 + names + extra)


def at_offset(path: Path, start: int = 0) -> InFile | None:
    """The array whose npy header begins there, if it is large and can be used as it is; else None."""
    with path.open("rb") as file:
        file.seek(start)
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        offset = file.tell()
    large = math.prod(shape) * dtype.itemsize >= LARGE
    usable = large and str(dtype) in KINDS and len(shape) > 1 and not fortran
    return InFile(path, offset, shape, dtype) if usable else None
