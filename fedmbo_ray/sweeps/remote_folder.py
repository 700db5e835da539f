"""A sweep's folder for trials on machines that can't see it: they work in a copy, and send it what they write.

The machines of a cluster need no shared storage. A trial that lost its machine continues on another one from what it
has sent; if the lost machine comes back, what it still sends is refused.
"""

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedmbo_ray.core.errors import FolderDamaged, RunFailed
from fedmbo_ray.core.io import write_atomically
from fedmbo_ray.core.scratch import scratch_folder
from fedmbo_ray.runs.driver import in_cluster
from fedmbo_ray.sweeps.folder import STOP, SweepFolder, TrialFolder

if TYPE_CHECKING:
    from ray.actor import ActorHandle

SECONDS_BETWEEN_QUESTIONS = 0.5


class Piece(NamedTuple):
    """What a file holds from `start` on."""

    path: str
    start: int
    data: bytes


class Keeper:
    """An actor on the machine that has the sweep's folder; every call may be repeated."""

    def __init__(self, out: str) -> None:
        self.trials, self.owners = Path(out) / "trials", dict[str, str]()

    def fetch(self, trial: str, owner: str) -> dict[str, bytes]:
        """All files of a trial; it then belongs to this owner alone."""
        self.owners[trial] = owner
        return {path: (self.trials / trial / path).read_bytes() for path in files_of(self.trials / trial)}

    def stopping(self) -> bool:
        """Whether the trials are to stop."""
        return (self.trials.parent / STOP).exists()

    def store(self, trial: str, owner: str, pieces: list[Piece], gone: list[str]) -> bool:
        """Store files of a trial; returns whether it still belonged to this owner."""
        if self.owners.setdefault(trial, owner) != owner:
            return False
        for path in gone:
            (self.trials / trial / path).unlink(missing_ok=True)
        for piece in pieces:
            file = self.trials / trial / piece.path
            file.parent.mkdir(parents=True, exist_ok=True)
            if piece.start == 0:
                write_atomically(file, piece.data)
            else:
                with file.open("r+b") as opened:
                    opened.truncate(piece.start)
                    opened.seek(piece.start)
                    opened.write(piece.data)
        return True


class Sent(NamedTuple):
    """What was sent of a file."""

    size: int
    digest: bytes

    @staticmethod
    def of(data: bytes) -> "Sent":
        return Sent(len(data), sha256(data).digest())


class Copy:
    """The copy of a trial's folder on another machine."""

    def __init__(self, keeper: "ActorHandle", folder: TrialFolder) -> None:
        self.keeper, self.folder, self.owner = keeper, folder, uuid.uuid4().hex
        files = ray.get(keeper.fetch.remote(folder.name, self.owner))
        for path, data in files.items():
            (folder.path / path).parent.mkdir(parents=True, exist_ok=True)
            (folder.path / path).write_bytes(data)
        self.sent = {path: Sent.of(data) for path, data in files.items()}

    def send(self) -> None:
        """What is new; for a file that has only grown, the end of it."""
        now = {path: (self.folder.path / path).read_bytes() for path in files_of(self.folder.path)}
        pieces = [Piece(path, self._kept(path, data), data) for path, data in now.items()]
        new = [Piece(path, start, data[start:]) for path, start, data in pieces if start < len(data)]
        new.sort(key=lambda piece: "/checkpoints/" in piece.path)  # records before the checkpoints that count them
        gone = [path for path in self.sent if path not in now]
        if (new or gone) and not ray.get(self.keeper.store.remote(self.folder.name, self.owner, new, gone)):
            raise RunFailed(f"trial {self.folder.name} continues on another node: this one was considered lost")
        self.sent = {path: Sent.of(data) for path, data in now.items()}

    def _kept(self, path: str, data: bytes) -> int:
        """How much of a file the keeper has already."""
        sent = self.sent.get(path)
        return sent.size if sent is not None and sent == Sent.of(data[: sent.size]) else 0


def files_of(folder: Path) -> list[str]:
    """The files of a trial to keep: all but locks and half-written files."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return [str(path.relative_to(folder)) for path in found]


class Asking:
    """Tells whether trials are to stop; asks the keeper every half second."""

    def __init__(self, keeper: "ActorHandle") -> None:
        self.keeper, self.answer, self.next = keeper, False, 0.0

    def __call__(self) -> bool:
        if not self.answer and time.monotonic() >= self.next:
            self.answer = ray.get(self.keeper.stopping.remote())
            self.next = time.monotonic() + SECONDS_BETWEEN_QUESTIONS
        return self.answer


class Home(NamedTuple):
    """Where a sweep's folder is: its path, what identifies it there, and who keeps it if not all can see it."""

    path: str
    identity: str
    keeper: "ActorHandle | None" = None

    def seen(self) -> bool:
        """Whether this machine sees the folder, on its own disk or on shared storage."""
        try:
            return SweepFolder(Path(self.path)).identity == self.identity
        except (OSError, FolderDamaged):
            return False

    def stopping(self) -> Callable[[], bool]:
        """A function that a trial calls after every round: whether it is to stop."""
        return (Path(self.path) / STOP).exists if self.keeper is None else Asking(self.keeper)

    def close(self) -> None:
        if self.keeper is not None:
            ray.kill(self.keeper)

    @contextmanager
    def trial(self, name: str, seeds: int) -> Iterator[tuple[TrialFolder, Callable[[], None]]]:
        """A trial's folder, and a function to call when something in it is new."""
        if self.keeper is None or self.seen():
            yield TrialFolder(Path(self.path) / "trials" / name, seeds), lambda: None
            return
        place = scratch_folder()
        try:
            copy = Copy(self.keeper, TrialFolder(place / name, seeds))
            yield copy.folder, copy.send
        finally:
            shutil.rmtree(place, ignore_errors=True)


def home_of(folder: SweepFolder) -> Home:
    """The home of a sweep; with a keeper on this machine if the cluster may have others."""
    path, identity = str(folder.path.absolute()), folder.identity
    if not in_cluster():
        return Home(path, identity)
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"num_cpus": 0, "scheduling_strategy": here, "max_restarts": -1, "max_task_retries": -1}
    return Home(path, identity, ray.remote(Keeper).options(**options).remote(path))
