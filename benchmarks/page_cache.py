"""Which pages of a file the operating system keeps in memory."""

import ctypes
import mmap
import os
from pathlib import Path
from types import TracebackType

import numpy as np

LIBC = ctypes.CDLL(None, use_errno=True)


class PageCache:
    """The pages of one file, asked with mincore(2); the file must be the user's own."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("r+b")
        self.map = mmap.mmap(self.file.fileno(), 0)  # mapped, but never read: no page comes into memory by it
        self.pages = (ctypes.c_ubyte * -(-len(self.map) // mmap.PAGESIZE))()

    def __enter__(self) -> "PageCache":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.map.close()
        self.file.close()

    def held(self) -> int:
        """How many bytes of the file are in memory."""
        start = (ctypes.c_char * 0).from_buffer(self.map)
        done = LIBC.mincore(ctypes.byref(start), ctypes.c_size_t(len(self.map)), self.pages)
        del start  # or the map could not be closed
        if done:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return mmap.PAGESIZE * int((np.frombuffer(self.pages, np.uint8) & 1).sum())

    def drop(self) -> None:
        """Have the system give up what it keeps of the file."""
        os.fsync(self.file.fileno())
        os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
