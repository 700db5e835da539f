"""Files: written whole or not at all, held by one process, YAML without surprises."""

import fcntl
import hashlib
import json
import os
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import yaml

from fedmbo_ray.core.errors import ConfigError, FolderDamaged, FolderInUse, quoted
from fedmbo_ray.core.interruptions import at_stake

LARGEST = 10_000_000  # bytes of a config
DEEPEST = 100  # how many values are inside each other
MOST_VALUES = 100_000  # of a config
LONGEST_INTEGER = 10_000  # bits; Python writes down no more than 4300 digits
SHIPPED = Path(__file__).parent.parent / "tune_configs"  # sweeps and studies that come with the package


@at_stake()
def write_atomically(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Replace `path` by `data`, durably: a reader sees the old content or the new, also after a crash."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # also Ctrl-C: nothing half-written stays
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def remove_half_written(folder: Path) -> None:
    """Remove what processes that were killed have left of `write_atomically`; nobody else may be writing there."""
    for path in folder.glob(".*.new"):
        path.unlink(missing_ok=True)


def make_durable(path: Path) -> None:
    """Return when a file's content, and its name in its folder, would survive a power cut."""
    _sync(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def to_yaml(fields: object) -> bytes:
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True).encode()


def own_folder(path: Path) -> None:
    """Make a folder that only its owner can open; one that exists stays as open as it is."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def held(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold a folder for this process alone, until the process ends at the latest. Waits up to `patience` seconds."""
    own_folder(folder)
    deadline = time.monotonic() + patience
    with (folder / ".lock").open("w") as file:
        while not _locked(file):
            if time.monotonic() >= deadline:
                raise FolderInUse(f"{folder} is in use by a run that has not been closed, in this or another process")
            time.sleep(0.1)
        yield


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """In this context, no other process is in it for the same folder. The lock needs no file."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)  # some files, such as /dev/zero, have no end
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a name with a zero byte
        said = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigError(f"can't read {path}: {said}") from None
    if len(data) > LARGEST:
        raise ConfigError(f"can't read {path}: a config has at most {LARGEST} bytes")
    fields = parse_yaml(text, str(path))
    if not isinstance(fields, dict):
        raise ConfigError(f"{path} must be a mapping of keys to values, but is {type(fields).__name__}")
    return fields


class PlainYaml(yaml.SafeLoader):
    """YAML without what executes, without keys given twice, of which PyYAML silently takes the last, and of a size
    and depth that every function can go through, aliases counted as often as they are used.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.sizes: dict[yaml.Node, int] = {}
        self.open: list[yaml.Node | None] = []

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """A part with how many values it stands for."""
        if len(self.open) > DEEPEST:
            raise yaml.YAMLError(f"values may be nested {DEEPEST} deep at most")
        self.open.append(parent)
        node = super().compose_node(parent, index)
        if node is not None and node in self.open:
            raise yaml.YAMLError("a value contains itself, by an alias")
        self.open.pop()
        if node is not None and node not in self.sizes:
            self.sizes[node] = 1 + sum(self.sizes[each] for each in inner_nodes(node))
            if self.sizes[node] > MOST_VALUES:
                raise yaml.YAMLError(f"there may be {MOST_VALUES} values at most, those of aliases included")
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """The keys as written: later, those of merged mappings are among them."""
        node = super().compose_mapping_node(anchor)
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        twice = next((key for key, count in keys.items() if count > 1), None)
        if twice is not None:
            raise yaml.YAMLError(f"the key {quoted(twice)} is given twice")
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value that a node stands for; PyYAML raises errors of any kind for text that does not fit its tag."""
        try:
            value = super().construct_object(node, deep)
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError):
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            raise yaml.YAMLError(f"{quoted(node.value)} can't be read as {tag}") from None
        if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
            raise yaml.YAMLError(f"integers may have {LONGEST_INTEGER} bits at most, but {quoted(node.value)} has more")
        return value


def inner_nodes(node: yaml.Node) -> list[yaml.Node]:
    """The parts of a list or a mapping."""
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def parse_yaml(text: str, name: str) -> Any:
    try:
        return yaml.load(text, PlainYaml)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{name} is not YAML: {' '.join(str(error).split())}") from None


def new_identity(file: Path, begun: bool = False) -> str:
    """The identity of a folder, made if it has none. If something was `begun` in it, a line says that it is new."""
    if not file.exists():
        if begun:
            print(f"{file} is gone, so a new one is made: MLflow will show this a second time", file=sys.stderr)
        digits = uuid.uuid4().hex
        write_atomically(file, f"{digits}-{_short_digest(digits)}\n".encode())
    return read_identity(file)


def read_identity(file: Path) -> str:
    """The 32 digits by which MLflow knows a folder; their digest beside them tells whether they are damaged."""
    try:
        digits, dash, digest = file.read_text(encoding="ascii").strip().partition("-")
    except (ValueError, IsADirectoryError):
        digits, dash, digest = "", "", ""
    whole = re.fullmatch("[0-9a-f]{32}", digits)
    if not whole or (dash and digest != _short_digest(digits)):  # folders of version 0.1 have no digest
        raise FolderDamaged(
            f"{file} is damaged, so that its runs in MLflow can't be found: put it back as it was, or remove it to "
            "have everything recorded in MLflow a second time"
        )
    return digits


def _short_digest(digits: str) -> str:
    return hashlib.sha256(digits.encode()).hexdigest()[:8]


def read_json(path: Path, **kinds: type) -> dict[str, Any] | None:
    """The mapping in a file, with values of some kinds for some keys; None if there is no file."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError, OSError):
        raise FolderDamaged(f"{path} is damaged: it is not JSON") from None
    require_mapping(found, str(path), **kinds)
    return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The mappings in a file of lines, none if there is no file; a last line cut short by a crash is passed over."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(json.loads(line))
            require_mapping(found[-1], f"line {number} of {path}")
        except (ValueError, RecursionError):
            if number == len(lines):
                break
            raise FolderDamaged(f"line {number} of {path} is not JSON") from None
    return found


def require_mapping(found: object, what: str, **kinds: type) -> None:
    """Raise FolderDamaged unless it is a mapping that has these keys, with values of these kinds."""
    if not isinstance(found, dict) or any(not isinstance(found.get(key), kind) for key, kind in kinds.items()):
        wanted = "".join(f", with {key} ({kind.__name__})" for key, kind in kinds.items())
        raise FolderDamaged(f"{what} is damaged: it must be a mapping{wanted}, but is {quoted(found)}")


def read_word(file: Path, known: Sequence[str]) -> str:
    """The one word in a file, one of those that are known."""
    word = file.read_bytes().decode("utf-8", "replace").strip()
    if word not in known:
        raise FolderDamaged(f"{file} is damaged: it must hold one of {', '.join(known)}, but holds {quoted(word)}")
    return word
