"""A run's folder: resolved config, records, checkpoints, result. Every file is written whole or not at all.

Records are made durable before the checkpoint that counts them, so that a crash or a power cut at any moment leaves a
checkpoint with all its records. Whoever continues a run checks both against each other and against the config.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedmbo_ray.config.schema import Fields
from fedmbo_ray.core.errors import ConfigError, FolderDamaged
from fedmbo_ray.core.io import held, make_durable, read_yaml, remove_half_written, to_yaml, write_atomically
from fedmbo_ray.runs.arrays import npz, read_npz
from fedmbo_ray.runs.checkpoint import Checkpoint, RecordChain, as_arrays, as_state, digests, sealed, without_ending
from fedmbo_ray.runs.records import CutShort, Record, read_record
from fedmbo_ray.runs.state import State, sha256


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
    def claimed(self, resolved: dict[str, Any], resume: bool, patience: float = 0.0) -> Iterator[None]:
        """Hold the folder for this process and write the config; waits up to `patience` seconds for another process."""
        with held(self.path, patience):
            if self.has_run() and not resume:
                raise ConfigError(
                    f"{self.path} already holds a run; continue it (resume) or choose another folder (out)"
                )
            self._require_own_checkpoints()
            if not resume and self._checkpoints():
                raise ConfigError(
                    f"{self.path} holds checkpoints of another run, without its records; choose another folder (out), "
                    f"or remove {self.checkpoints}"
                )
            self.checkpoints.mkdir(exist_ok=True)
            for folder in (self.path, self.checkpoints):
                remove_half_written(folder)
            self.describe(resolved)
            yield

    def describe(self, resolved: dict[str, Any]) -> None:
        write_atomically(self.config_file, to_yaml(resolved))

    def adopt(self, resolved: dict[str, Any]) -> None:
        """Give the run that was copied here another config, with which it continues."""
        checkpoint = self.latest()
        if checkpoint is not None:
            self.rewind(checkpoint)
            self.save(checkpoint._replace(config=resolved), keep=1)
        self.describe(resolved)

    def has_run(self) -> bool:
        """Whether a run has its first record; before that, its config may still be changed."""
        return self.config_file.exists() and self.has_records()

    def has_records(self) -> bool:
        return self.records_file.exists()

    def has_ended(self) -> bool:
        return "status" in (self.records() or [{}])[-1]

    def append(self, record: Record) -> None:
        with self.records_file.open("a") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def proven_records(self) -> list[Record]:
        """All records; raises FolderDamaged if the run has ended and they are not those that it ended with."""
        records = self.records()
        if not records or "status" not in records[-1]:
            return records
        of_old_version = "records_sha256" not in records[-1] and not self._checkpoints()
        as_ended = of_old_version or records[-1] == sealed(records[-1], RecordChain.of(records[:-1]))
        if not as_ended or len(records) < len(self._lines()):
            raise FolderDamaged(
                f"{self.records_file} was changed after the run had ended; put it back as it was, or remove "
                f"{self.path} to run it again"
            )
        return records

    def records(self) -> list[Record]:
        """All records; a last line that a crash has cut short is skipped, any other damage is an error."""
        lines, records = self._lines(), []
        for number, line in enumerate(lines, start=1):
            try:
                records.append(read_record(line))
            except ValueError as error:
                if isinstance(error, CutShort) and number == len(lines):
                    break
                raise FolderDamaged(
                    f"line {number} of {self.records_file} is not a record, since {error}; put it back as it was, or "
                    f"remove {self.path} to run it again"
                ) from None
        return records

    def _lines(self) -> list[bytes]:
        return self.records_file.read_bytes().splitlines() if self.records_file.exists() else []

    def require_proven(self) -> Checkpoint | None:
        """The newest checkpoint; raises FolderDamaged if records were changed or do not belong to the config."""
        self.proven_records()
        return self.latest()

    def settle(self) -> None:
        """Keep only what is proven: a run that has not ended goes back to its newest checkpoint, as in a resume.

        A run that has ended but has lost its result does the same. The folder must be held.
        """
        checkpoint = self.require_proven()
        ended = self.has_ended() and self.has_result()
        if not ended and len(self._lines()) != (0 if checkpoint is None else checkpoint.records):
            self.rewind(checkpoint)

    def rewind(self, checkpoint: Checkpoint | None) -> list[Record]:
        """Keep the records before a checkpoint (None: no record), and no newer checkpoint; returns the records."""
        kept = [without_ending(record) for record in self.records()[: checkpoint.records if checkpoint else 0]]
        self._keep(kept, -1 if checkpoint is None else checkpoint.round)
        return kept

    def cut(self, round: int) -> None:
        """Remove what a run has done after a round, as if it had never gone on."""
        records = self.records()
        kept = [record for record in records if record["round"] <= round]
        if len(kept) < len(records):
            self._keep(kept, round)

    def _keep(self, records: list[Record], round: int) -> None:
        """Keep these records alone, and the checkpoints up to a round; these go first, since they count records."""
        for path in self._checkpoints():
            if int(path.stem) > round:
                path.replace(path.with_suffix(".unused"))
        write_atomically(self.records_file, "".join(json.dumps(record) + "\n" for record in records).encode())
        self.result_file.unlink(missing_ok=True)

    def save(self, checkpoint: Checkpoint, keep: int) -> None:
        """Write a checkpoint, the records before it made durable first, and drop all but the last `keep`."""
        if self.records_file.exists():
            make_durable(self.records_file)
        write_atomically(self.checkpoints / f"{checkpoint.round:08d}.npz", npz(checkpoint.arrays()))
        for old in self._checkpoints()[:-keep]:
            old.unlink()

    def latest(self, tell: bool = False, config: Fields | None = None) -> Checkpoint | None:
        """The newest checkpoint that is whole and belongs to the config and the records here; None if there is none.

        Args:
            tell: print which newer ones are passed over, and why.
            config: the resolved config to which it must belong; by default, that in the folder.

        Raises:
            FolderDamaged: there are whole checkpoints, but none of them belongs here.
        """
        self._require_own_checkpoints()
        paths, foreign = self._checkpoints(), []
        chain = digests(self.records()) if paths else []
        config = read_yaml(self.config_file) if config is None and paths else config or {}
        for path in reversed(paths):
            try:
                found = Checkpoint.read(path)
                objection = found.objection(config, chain)
            except FolderDamaged as error:
                found, objection = None, str(error).removeprefix(f"{path} ")
            if found is not None and objection is None:
                return found
            foreign += [f"{path} {objection}"] if found is not None else []
            if tell:
                print(f"passing over the checkpoint {path}, which {objection}", file=sys.stderr)
        if foreign:
            raise FolderDamaged(
                f"{foreign[0]}; put {self.config_file.name} and {self.records_file.name} back as they were, or remove "
                f"{self.path} to run it again"
            )
        return None

    def saved_round(self) -> int:
        """The round of the newest checkpoint file, 0 if there is none."""
        return max((int(path.stem) for path in self._checkpoints()), default=0)

    def save_result(self, state: State) -> None:
        """Write the final x and y where `numpy.load` finds them."""
        write_atomically(self.result_file, npz(as_arrays({name: state[name] for name in ("x", "y")})))

    def result(self) -> State | None:
        """The final x and y; until the run has ended, those of the newest checkpoint; None before the first."""
        if self.has_ended() and self.result_file.exists():
            return self._recorded_result()
        checkpoint = self.latest()
        return None if checkpoint is None else checkpoint.state

    def has_result(self) -> bool:
        """Whether `result.npz` is there, undamaged, and has the digests that the last record names."""
        try:
            return self.result_file.is_file() and bool(self._recorded_result())
        except FolderDamaged:
            return False

    def _recorded_result(self) -> State:
        """The state in `result.npz`; raises FolderDamaged if the last record has other digests."""
        arrays = read_npz(self.result_file)
        if arrays is None:
            raise FolderDamaged(f"{self.result_file} is damaged: resuming the run makes it again")
        try:
            found, last = as_state(arrays), (self.records() or [{}])[-1]
        except (ValueError, TypeError):
            found, last = {}, {}
        if not found or any(last.get(f"{name}_sha256", sha256(found[name])) != sha256(found[name]) for name in "xy"):
            raise FolderDamaged(f"{self.result_file} is not that of the last record: resuming the run makes it again")
        return found

    def _require_own_checkpoints(self) -> None:
        """Raise FolderDamaged for checkpoints of version 0.1, which have another format."""
        if not self._checkpoints() and self._checkpoints("pt"):
            raise FolderDamaged(f"{self.path} holds a run of version 0.1, which only that version can continue")

    def _checkpoints(self, kind: str = "npz") -> list[Path]:
        found = self.checkpoints.glob(f"*.{kind}")
        return sorted(path for path in found if path.stem.isdecimal() and path.is_file())
