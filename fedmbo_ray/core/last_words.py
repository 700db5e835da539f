"""What a command says before it ends at once, because its main thread waits for something that will never come."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Words = Callable[[BaseException], int]  # says why the process ends; returns the exit code
_WORDS: list[Words] = []


@contextmanager
def last_words(words: Words) -> Iterator[None]:
    """Within it, `leave` may end this process."""
    _WORDS.append(words)
    try:
        yield
    finally:
        _WORDS.pop()


def leave(error: BaseException) -> None:
    """End the process if it is a command's; others are not ours to end."""
    if _WORDS:
        os._exit(_WORDS[-1](error))
