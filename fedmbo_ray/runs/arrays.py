"""Arrays in a file that `numpy.load` opens; its last bytes are a digest that tells whether it is whole."""

import io
import zipfile
import zlib
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NamedArrays = dict[str, NDArray[np.generic]]
DIGITS = 64  # of a SHA-256 in hexadecimal
# What zipfile and numpy raise if a file does not contain arrays.
UNREADABLE = (zipfile.BadZipFile, zlib.error, ValueError, TypeError, KeyError, EOFError, RuntimeError, ArithmeticError)


def npz(arrays: NamedArrays) -> bytes:
    """An .npz file whose comment, where a zip archive ends, is the SHA-256 of all that stands before it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = b"0" * DIGITS
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    content = buffer.getvalue()[:-DIGITS]
    return content + sha256(content).hexdigest().encode()


def read_npz(path: Path) -> NamedArrays | None:
    """What `npz` made of arrays, None if the file is damaged."""
    content = path.read_bytes()
    if sha256(content[:-DIGITS]).hexdigest().encode() != content[-DIGITS:]:
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name.removesuffix(".npy"): array(archive.read(name)) for name in archive.namelist()}
    except UNREADABLE:
        return None


def array(data: bytes) -> NDArray[np.generic]:
    found: NDArray[np.generic] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return found
