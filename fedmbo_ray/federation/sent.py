"""What has been sent already: when a tensor counts as the same one, and which slots of a cohort were told it.

The rule: a tensor is the same one as long as it is the same object and has not been written to. The meter asks it for
every slot of a cohort; the transport, for every actor.
"""

from collections import defaultdict

from torch import Tensor

from fedmbo_ray.core.compat import writes
from fedmbo_ray.federation.cohort import Cohort


class VersionNumbers:
    """Numbers tensors: one has the same number until it is written to, and no two tensors have the same number.

    With `most`, so many are remembered; one that has been forgotten gets a new number.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most, self.last = most, 0
        self.known: dict[int, tuple[Tensor, int, int]] = {}  # by id, which stays the tensor's while it is kept here

    def make_room(self, count: int) -> None:
        """From now on, remember at least so many."""
        self.most = None if self.most is None else max(self.most, count)

    def of(self, tensor: Tensor) -> int:
        """The tensor's version number."""
        _, written, number = self.known.get(id(tensor), (tensor, -1, 0))
        if written != writes(tensor):
            self.last = number = self.last + 1
            self.known.pop(id(tensor), None)  # so that the newest come last
            self.known[id(tensor)] = (tensor, writes(tensor), number)
            if self.most is not None and len(self.known) > self.most:
                del self.known[next(iter(self.known))]
        return number


class Ledger:
    """What the slots of a round's cohorts have received, and which of them have been asked for an answer.

    A slot remembers what it received in any part of its cohort; a client that is sampled again remembers nothing.
    """

    def __init__(self) -> None:
        self.versions = VersionNumbers()
        self.told: dict[tuple[Cohort, int], set[int]] = defaultdict(set)  # by whole cohort and version: its slots
        self.asked: dict[Cohort, set[int]] = defaultdict(set)

    def tell(self, cohort: Cohort, tensor: Tensor) -> int:
        """How many slots of the cohort did not know the tensor; from now on, all of them know it."""
        return _added(self.told[cohort.whole, self.versions.of(tensor)], cohort)

    def ask(self, cohort: Cohort) -> int:
        """How many slots of the cohort have been asked before; from now on, all of them have."""
        return len(cohort) - _added(self.asked[cohort.whole], cohort)


def _added(slots: set[int], cohort: Cohort) -> int:
    before = len(slots)
    slots.update(cohort.slots.tolist())
    return len(slots) - before
