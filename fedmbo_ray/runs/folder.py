"""A run's folder: resolved config, records, checkpoints, result. Every file is written whole or not at all."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedmbo_ray.core.errors import ConfigError, FolderDamaged
from fedmbo_ray.core.io import held, to_yaml, write_atomically
from fedmbo_ray.runs.arrays import NamedArrays, npz, read_npz
from fedmbo_ray.runs.state import State

Record = dict[str, Any]

CHECKPOINT_NOTE = "_about"  # the array of a checkpoint that holds text: JSON of its costs and sums
ENDING = ("status", "reason", "ended_by", "backend", "x_sha256", "y_sha256")  # that only a run's last record has


class Checkpoint(NamedTuple):
    """A run after a round: everything it needs to continue, and what it has used up."""

    state: State
    costs: Record  # `round`, and what has been used up until then
    sums: dict[str, float]  # over rounds, of the figures whose means are recorded

    @property
    def round(self) -> int:
        return int(self.costs["round"])

    def arrays(self) -> NamedArrays:
        about = json.dumps({"costs": self.costs, "sums": self.sums})
        return {**as_arrays(self.state), CHECKPOINT_NOTE: np.array(about)}

    @staticmethod
    def of(arrays: NamedArrays) -> "Checkpoint":
        about = json.loads(arrays.pop(CHECKPOINT_NOTE).item())
        state = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return Checkpoint(state, about["costs"], about["sums"])


class RunFolder:
    """`config.yaml`, `records.jsonl`, `checkpoints/` and, in the end, `result.npz` of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"
        self.records_file = path / "records.jsonl"
        self.result_file = path / "result.npz"
        self.checkpoints = path / "checkpoints"
        self.profile_file = path / "profile.json"

    @contextmanager
    def claimed(self, resolved: dict[str, Any], resume: bool) -> Iterator[None]:
        """Held by the one process that runs here, its config written."""
        with held(self.path):
            if self.has_run() and not resume:
                raise ConfigError(
                    f"{self.path} already holds a run; continue it (resume) or choose another folder (out)"
                )
            self._require_own_checkpoints()
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

    def rewind(self, keeps: Callable[[int], bool]) -> list[Record]:
        """Keep the records of rounds that are not made again, without any ending; returns them."""
        kept = [
            {key: value for key, value in record.items() if key not in ENDING}
            for record in self.records()
            if keeps(record["round"])
        ]
        write_atomically(self.records_file, "".join(json.dumps(record) + "\n" for record in kept).encode())
        self.result_file.unlink(missing_ok=True)
        return kept

    def save(self, checkpoint: Checkpoint, keep: int) -> None:
        """Write a checkpoint, and drop all but the last `keep`."""
        write_atomically(self.checkpoints / f"{checkpoint.round:08d}.npz", npz(checkpoint.arrays()))
        for old in self._checkpoints()[:-keep]:
            old.unlink()

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, None if there is none."""
        self._require_own_checkpoints()
        for path in reversed(self._checkpoints()):
            arrays = read_npz(path)
            if arrays is not None:
                return Checkpoint.of(arrays)
            print(f"passing over the damaged checkpoint {path}", file=sys.stderr)
        return None

    def saved_round(self) -> int:
        """The round of the newest checkpoint, 0 if there is none."""
        return max((int(path.stem) for path in self._checkpoints()), default=0)

    def save_result(self, state: State) -> None:
        """Write the final x and y where `numpy.load` finds them."""
        write_atomically(self.result_file, npz(as_arrays({name: state[name] for name in ("x", "y")})))

    def result(self) -> State | None:
        """The final x and y; those of the newest checkpoint until there are any; None before the first."""
        if self.result_file.exists():
            arrays = read_npz(self.result_file)
            if arrays is None:
                raise FolderDamaged(f"{self.result_file} is damaged: resuming the run makes it again")
            return {name: torch.from_numpy(array) for name, array in arrays.items()}
        checkpoint = self.latest()
        return None if checkpoint is None else checkpoint.state

    def _require_own_checkpoints(self) -> None:
        """Those of version 0.1 were files of another kind."""
        if not self._checkpoints() and self._checkpoints("pt"):
            raise FolderDamaged(f"{self.path} holds a run of version 0.1, which only that version can continue")

    def _checkpoints(self, kind: str = "npz") -> list[Path]:
        found = self.checkpoints.glob(f"*.{kind}")
        return sorted(path for path in found if path.stem.isdecimal() and path.is_file())


def as_arrays(state: State) -> NamedArrays:
    return {name: tensor.contiguous().numpy() for name, tensor in state.items()}
