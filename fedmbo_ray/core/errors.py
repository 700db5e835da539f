"""The errors that users see, each as one line."""

import difflib
import re
from collections.abc import Iterator
from contextlib import contextmanager

QUOTED = 200  # letters of a value that an error shows
LONGEST = 2000  # letters of an error


class FedmboError(Exception):
    """The base of all errors that this package raises on purpose: catch it to catch any of them."""


class ConfigError(FedmboError):
    """A config breaks a rule. The message is one line: path, rule, value, choices."""

    def __init__(self, rule: str, *path: str) -> None:
        super().__init__(rule, *path)
        self.rule, self.path = rule, path

    def __str__(self) -> str:
        return shortened(f"{'.'.join(self.path)}: {self.rule}" if self.path else self.rule)


@contextmanager
def at(field: str | None) -> Iterator[None]:
    """In this context, a ConfigError gets `field` in front of its path."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(error.rule, *([field] if field else []), *error.path) from None


def choices(wrong: str, known: list[str]) -> str:
    """The known words as text, with the nearest one first if there is one: "did you mean …? known: …"."""
    return f"{nearest(wrong, known)}known: {', '.join(known)}"


def nearest(wrong: str, known: list[str]) -> str:
    """A question that names the nearest known word; empty if none is near."""
    near = difflib.get_close_matches(wrong.lower(), known, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def quoted(value: object) -> str:
    """A value as Python writes it, without the middle if that is long."""
    try:
        return _without_middle(repr(value), QUOTED)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or something very deep
        return f"a very large {type(value).__name__}"


def shortened(text: str) -> str:
    """A text in one line of a readable length: the middles of long words are left out, and that of a long text."""
    plain = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(text.split()))
    return _without_middle(
        re.sub(rf"\S{{{QUOTED + 1},}}", lambda word: _without_middle(word[0], QUOTED), plain), LONGEST
    )


def _without_middle(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}… ({len(text)} letters) …{text[-half:]}"


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class RunFailed(FedmboError):
    """A run can't continue: a kernel raised an exception, or processes keep dying. The message says which."""


class RunStopped(RunFailed):
    """A run was ended from outside: Ray died, or there was no memory. The run in its folder can be continued."""


class FolderInUse(FedmboError):
    """A run that has not been closed, in this or another process, is using the folder; two runs must not share one."""


class FolderDamaged(FedmboError):
    """A file in the folder can't be read, or an older version wrote it; nothing was changed."""


class DownloadError(FedmboError):
    """A download failed; the message names every source tried and where to put the files by hand."""
