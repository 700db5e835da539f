"""What a command says before it ends at once, because its main thread waits for a call that will never return."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Words = Callable[[BaseException], int]  # says why the process ends; returns the exit code
_WORDS: list[Words] = []


@contextmanager
def last_words(words: Words) -> Iterator[None]:
    """In this context, `leave` may end this process."""
    _WORDS.append(words)
    try:
        yield
    finally:
        _WORDS.pop()


def leave(error: BaseException) -> None:
    """End the process if it runs a command; other programs decide themselves when to end."""
    if _WORDS:
        os._exit(_WORDS[-1](error))
