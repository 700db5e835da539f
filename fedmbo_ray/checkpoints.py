"""A run's folder: resolved config, records, checkpoints. Every file is written whole or not at all."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml

Record = dict[str, Any]


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data`; a reader, or a crash, sees the old content or the new, nothing between."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class RunFolder:
    """`config.yaml`, `records.jsonl` and `checkpoints/` of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"
        self.records_file = path / "records.jsonl"
        self.checkpoints = path / "checkpoints"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Held by the one process that runs here; the lock goes when the process does."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderInUse(f"another process is running in {self.path}") from None
            yield

    def has_run(self) -> bool:
        return self.config_file.exists()

    def write_config(self, resolved: dict[str, Any]) -> None:
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_atomically(self.config_file, yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True).encode())

    def append(self, record: Record) -> None:
        with self.records_file.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def records(self) -> list[Record]:
        """All records; a last line cut short by a crash is passed over."""
        if not self.records_file.exists():
            return []
        records = []
        for line in self.records_file.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records

    def rewind(self, round: int) -> list[Record]:
        """Drop the records after `round` (they will be made again) and any `status`; returns what is left."""
        kept = [
            {key: value for key, value in record.items() if key not in ENDING}
            for record in self.records()
            if record["round"] <= round
        ]
        write_atomically(self.records_file, "".join(json.dumps(record) + "\n" for record in kept).encode())
        return kept

    def save(self, checkpoint: dict[str, Any], keep: int) -> None:
        """Write the checkpoint of round `checkpoint["round"]` and drop all but the last `keep`."""
        path = self.checkpoints / f"{checkpoint['round']:08d}.pt"
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with temporary.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        for old in sorted(self.checkpoints.glob("[0-9]*.pt"))[:-keep]:
            old.unlink()

    def latest(self) -> dict[str, Any] | None:
        """The newest checkpoint that can be read, None if there is none."""
        for path in sorted(self.checkpoints.glob("[0-9]*.pt"), reverse=True):
            try:
                return torch.load(path, weights_only=True)
            except (RuntimeError, EOFError, OSError, ValueError) as error:
                print(f"passing over the unreadable checkpoint {path}: {error}")
        return None


ENDING = ("status", "reason", "x_sha256", "y_sha256")  # keys that only the last record of a run has


class FolderInUse(Exception):
    """Two processes must not run in one folder."""
