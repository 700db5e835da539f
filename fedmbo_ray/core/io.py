"""Files: written whole or not at all, held by one process, YAML without surprises."""

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from fedmbo_ray.core.errors import ConfigError, FolderDamaged, FolderInUse

SHIPPED = Path(__file__).parent.parent / "tune_configs"  # sweeps and studies that come with the package


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data`; a reader, or a crash, sees the old content or the new, nothing between."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def to_yaml(fields: object) -> bytes:
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True).encode()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """A folder held by one process alone; the claim goes when the process does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(
                f"{folder} is in use by a run that has not been closed, in this or another process"
            ) from None
        yield


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"can't read {path}: it is not text in UTF-8") from None
    fields = parse_yaml(text, str(path))
    if not isinstance(fields, dict):
        raise ConfigError(f"{path} must be a mapping of keys to values, but is {type(fields).__name__}")
    return fields


class UniqueKeys(yaml.SafeLoader):
    """YAML without what executes, and without keys given twice, of which PyYAML silently takes the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """The keys as written: later, those of merged mappings are among them."""
        node = super().compose_mapping_node(anchor)
        keys = [key.value for key, _ in node.value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.YAMLError(f"the key {twice!r} is given twice")
        return node


def parse_yaml(text: str, name: str) -> Any:
    try:
        return yaml.load(text, UniqueKeys)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{name} is not YAML: {' '.join(str(error).split())}") from None


def new_identity(file: Path) -> None:
    """Give a folder a name of its own, unless it has one."""
    if not file.exists():
        write_atomically(file, uuid.uuid4().hex.encode())


def read_json(path: Path) -> Any:
    """What is in a file, None if there is none."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        raise FolderDamaged(f"{path} is not JSON") from None
