"""A run's folder: resolved config, records, checkpoints. Every file is written whole or not at all."""

import fcntl
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import yaml

Record = dict[str, Any]


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


def to_yaml(fields: Any) -> bytes:
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True).encode()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """A folder held by one process alone; the claim goes when the process does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(f"another process is running in {folder}") from None
        yield


class RunFolder:
    """`config.yaml`, `records.jsonl` and `checkpoints/` of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"
        self.records_file = path / "records.jsonl"
        self.checkpoints = path / "checkpoints"
        self.profile_file = path / "profile.json"

    @contextmanager
    def claimed(self, resolved: dict[str, Any], resume: bool) -> Iterator[None]:
        """Held by the one process that runs here, its config written."""
        with held(self.path):
            if self.has_run() and not resume:
                raise FolderInUse(f"{self.path} already holds a run: continue it with --resume or choose another --out")
            self.checkpoints.mkdir(exist_ok=True)
            self.describe(resolved)
            yield

    def describe(self, resolved: dict[str, Any]) -> None:
        write_atomically(self.config_file, to_yaml(resolved))

    def has_run(self) -> bool:
        """Whether a run has come as far as its first record; until then, its config may still be changed."""
        return self.config_file.exists() and self.records_file.exists()

    def append(self, record: Record) -> None:
        with self.records_file.open("a") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def records(self) -> list[Record]:
        """All records; a last line cut short by a crash is passed over, anything else is not."""
        lines = self.records_file.read_bytes().splitlines() if self.records_file.exists() else []
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                records.append(json.loads(line))
                int(records[-1]["round"])
            except (ValueError, KeyError, TypeError):
                if number == len(lines):
                    return records[: number - 1]
                raise FolderDamaged(f"line {number} of {self.records_file} is not a record") from None
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
        """Write the checkpoint of round `checkpoint["round"]` behind its SHA-256, and drop all but the last `keep`."""
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        data = buffer.getvalue()
        write_atomically(self.checkpoints / f"{checkpoint['round']:08d}.pt", sha256(data).digest() + data)
        for old in self._checkpoints()[:-keep]:
            old.unlink()

    def latest(self) -> dict[str, Any] | None:
        """The newest checkpoint that is whole, None if there is none."""
        for path in reversed(self._checkpoints()):
            content = path.read_bytes()
            digest, data = content[:32], content[32:]
            if sha256(data).digest() == digest:
                return torch.load(io.BytesIO(data), weights_only=True)
            print(f"passing over the damaged checkpoint {path}", file=sys.stderr)
        return None

    def saved_round(self) -> int:
        """The round of the newest checkpoint, 0 if there is none."""
        return max((int(path.stem) for path in self._checkpoints()), default=0)

    def _checkpoints(self) -> list[Path]:
        return sorted(path for path in self.checkpoints.glob("*.pt") if path.stem.isdecimal() and path.is_file())


ENDING = ("status", "reason", "x_sha256", "y_sha256")  # keys that only the last record of a run has


class FolderInUse(Exception):
    """Two runs must not share a folder."""


class FolderDamaged(Exception):
    """A folder holds something that no run has written; nothing is done to it."""
