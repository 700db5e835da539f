"""Checkpoints: what a run needs to continue, and proof of the run that they belong to.

A checkpoint contains the config that made it, and the number and the digest of the records before it. So it is never
combined with the config or the records of another run.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedmbo_ray.config.overrides import changes
from fedmbo_ray.config.schema import EXECUTION, LENGTH, Fields, RunConfig
from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError, FolderDamaged, quoted
from fedmbo_ray.runs.arrays import NamedArrays, read_npz
from fedmbo_ray.runs.records import ENDING, Record
from fedmbo_ray.runs.state import State

FORMAT = 2  # of checkpoints; higher numbers belong to later versions
NOTE = "_about"  # the array of a checkpoint that holds text: JSON of everything but tensors
BEFORE = "_before"  # the array of a checkpoint that holds x before the last round
Counted = Annotated[int, Field(ge=0, lt=2**63)]
Used = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass
class RecordChain:
    """The number of a run's records so far and the SHA-256 of all of them, without endings and the time they took."""

    count: int = 0
    hash: Any = field(default_factory=hashlib.sha256)

    def add(self, record: Record) -> None:
        self.hash.update(json.dumps(untimed(without_ending(record))).encode() + b"\n")
        self.count += 1

    @property
    def digest(self) -> str:
        return str(self.hash.hexdigest())

    @staticmethod
    def of(records: Iterable[Record]) -> "RecordChain":
        chain = RecordChain()
        for record in records:
            chain.add(record)
        return chain


def sealed(record: Record, before: RecordChain) -> Record:
    """A run's last record with the digest of itself and of all records before it: the same wherever it is computed."""
    content = {key: value for key, value in untimed(record).items() if key not in ("backend", "records_sha256")}
    digest = hashlib.sha256(f"{before.digest}{json.dumps(content)}".encode()).hexdigest()
    return {**record, "records_sha256": digest}


def untimed(record: Record) -> Record:
    return {key: value for key, value in record.items() if not key.endswith("_seconds")}


def without_ending(record: Record) -> Record:
    return {key: value for key, value in record.items() if key not in ENDING}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Costs(_Strict):
    """What a run has used up until a checkpoint."""

    round: Counted
    communications: Counted
    samples: Counted
    floats_up: Counted
    floats_down: Counted
    dropped: Counted
    waited: Used
    data_epochs: Used | None
    wall_seconds: Used
    cpu_seconds: Used


class Note(_Strict):
    """What the file of a checkpoint contains besides tensors."""

    format: Literal[2]
    costs: Costs
    sums: dict[str, float]
    config: Fields
    records: Counted
    records_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Checkpoint(NamedTuple):
    """A run after a round: everything it needs to continue, and what it has used up."""

    state: State
    costs: Record  # `round`, and what has been used up until then
    sums: dict[str, float]  # over rounds, of the figures whose means are recorded
    config: Fields  # that made it, resolved
    records: int = 0  # how many there were
    records_sha256: str = ""
    before: Tensor | None = None  # x before the last round; None if no exact figure needs it

    @property
    def round(self) -> int:
        return int(self.costs["round"])

    def arrays(self) -> NamedArrays:
        about = {name: value for name, value in self._asdict().items() if name not in ("state", "before")}
        tensors = self.state if self.before is None else {**self.state, BEFORE: self.before}
        return {**as_arrays(tensors), NOTE: np.array(json.dumps({"format": FORMAT, **about}))}

    @staticmethod
    def read(path: Path) -> "Checkpoint":
        """The checkpoint in a file; raises FolderDamaged if it is damaged or of another version."""
        arrays = read_npz(path)
        if arrays is None:
            raise FolderDamaged(f"{path} is damaged")
        try:
            about = json.loads(str(arrays.pop(NOTE)))
            version = about.get("format", 1)
            if type(version) is int and version != FORMAT:
                said = f"{quoted(version)}, but this version of fedmbo_ray continues format {FORMAT} only"
                raise FolderDamaged(f"{path} has format {said}")
            note = Note.model_validate(about).model_dump(exclude={"format"})
            state = as_state(arrays)
            return Checkpoint(before=before_in(state), state=state, **note)
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError):  # pydantic's are ValueErrors
            raise FolderDamaged(f"{path} is not a checkpoint") from None

    def objection(self, config: Fields, chain: "list[str]") -> str | None:
        """Why it does not belong to a run with this config and with records of these digests; None if it belongs."""
        other = changes(self.config, config, (*EXECUTION, *LENGTH)) and changes(
            newest_form(self.config), newest_form(config), (*EXECUTION, *LENGTH)
        )
        if other:
            return f"is of another config: {', '.join(other)} differ{'s' if len(other) == 1 else ''}"
        if len(chain) <= self.records:
            return f"was made after {self.records} records, but there are only {len(chain) - 1}"
        if chain[self.records] != self.records_sha256:
            return f"was made after other records: one of the first {self.records} is missing or was changed"
        return None


def newest_form(config: Fields) -> Fields:
    """A config as this version resolves it: keys that this version has added get their defaults."""
    try:
        return construct(RunConfig, config).resolved()
    except ConfigError:
        return config


def digests(records: Iterable[Record]) -> list[str]:
    """The digests of the first 0, 1, 2, … records."""
    chain = RecordChain()
    found = [chain.digest]
    for record in records:
        chain.add(record)
        found.append(chain.digest)
    return found


def as_arrays(state: State) -> NamedArrays:
    return {name: tensor.contiguous().numpy() for name, tensor in state.items()}


def as_state(arrays: NamedArrays) -> State:
    """The tensors in a file, x and y among them; raises ValueError or TypeError if they are not those of a run."""
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if not {"x", "y"} <= state.keys() or not (state["x"].is_floating_point() and state["y"].is_floating_point()):
        raise ValueError("there must be numbers x and y")
    return state


def before_in(state: State) -> Tensor | None:
    """Takes x before the last round from the tensors in a file; raises ValueError if it is not like x."""
    before = state.pop(BEFORE, None)
    if before is not None and (before.shape, before.dtype) != (state["x"].shape, state["x"].dtype):
        raise ValueError("x before the last round must be like x")
    return before
