"""How a communication is carried out: seeds are drawn, what is sent is counted, slots are cut into blocks.

Results come back in slot order, sums are formed along a tree over the blocks, and the width of a block never depends on
the backend. So all backends give the same bits.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.core.rng import Seeds, draw_seeds
from fedmbo_ray.data.batches import ClientIds
from fedmbo_ray.federation.arguments import RowTensors, as_rows, remembered
from fedmbo_ray.federation.cohort import Cohort, Foreseen
from fedmbo_ray.federation.draws import Draws, drawn_together, samples_drawn
from fedmbo_ray.federation.execution import Block, Job
from fedmbo_ray.federation.relay import Leg, Route, Steps
from fedmbo_ray.federation.sent import Ledger

if TYPE_CHECKING:
    from fedmbo_ray.federation.clients import Federation


class Exchange:
    """What the server and its clients send each other during one round."""

    def __init__(self, federation: "Federation", rng: np.random.Generator) -> None:
        self.federation, self.rng = federation, rng
        self.ledger = Ledger()

    def foreseen(self, sample: Callable[[], Cohort], count: int) -> list[Cohort]:
        """The cohorts of the next `count` communications, with the seeds of all of them."""
        cohorts, seeds = list[Cohort](), list[Seeds]()
        for _ in range(count):
            cohorts.append(sample())
            seeds.append(self._asked(cohorts[-1]))
        if len({len(cohort) for cohort in cohorts}) > 1:  # some clients were omitted
            return [
                cohort.at(Foreseen(cohort.ids[None], own[None], 0)) for cohort, own in zip(cohorts, seeds, strict=True)
            ]
        clients, rows = np.array([cohort.ids for cohort in cohorts]), np.array(seeds)
        return [cohort.at(Foreseen(clients, rows, at)) for at, cohort in enumerate(cohorts)]

    def communicate(
        self, job: Job, cohort: Cohort | ClientIds, each: RowTensors, own: RowTensors
    ) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        """The sums of what clients upload (if summed); and its rows (if not summed), followed by the new memory."""
        cohort = cohort if isinstance(cohort, Cohort) else Cohort(cohort)
        each, own = as_rows(each), as_rows(own)
        job, clients, seeds = self._drawing(job, cohort)
        rows = (*each, *(memory[cohort.ids] for memory in own))
        blocks = [
            Block(clients[..., cut], seeds[..., cut], tuple([part[cut] for part in rows]))
            for cut in self._cuts(len(cohort))
        ]
        sums, by_block = self.federation.backend.run(job._replace(own=len(own)), blocks)[2:]
        stacked = [torch.cat(parts) for parts in zip(*by_block, strict=True)]
        uploaded = len(stacked) - len(own)
        floats_up = len(cohort) * sum([out.numel() for out in sums]) + sum([out.numel() for out in stacked[:uploaded]])
        floats_down = self._told(cohort, job.shared) + sum([part.numel() for part in each])
        self._count(cohort, job.draw, floats_down, floats_up)
        kept = zip(own, stacked[uploaded:], strict=True)
        return sums, stacked[:uploaded] + [remembered(memory, cohort.ids, new) for memory, new in kept]

    def _drawing(self, job: Job, cohort: Cohort) -> tuple[Job, ClientIds, Seeds]:
        """Clients and seeds: of this communication or, in rows, of several, of which this one is row `job.at`."""
        foreseen, cohort.foreseen = cohort.foreseen, None  # asked again, it is like any other cohort
        if foreseen is None:
            return job, cohort.ids, self._asked(cohort)
        count = drawn_together(job.draw, len(cohort), min(len(cohort), self.federation.block_size))
        clients, seeds, at = foreseen.among(count)
        return job._replace(at=at), clients, seeds

    def meet(
        self,
        route: Route,
        columns: Steps,
        at: Steps | int,
        cohort: Cohort,
        leg: Leg,
        shared: tuple[Tensor, Tensor],
        column: int = 0,
    ) -> None:
        """One communication of a relay: columns of `column` floats each meet the clients of a cohort."""
        route.meet(columns, at, cohort, self._asked(cohort))
        floats_down = self._told(cohort, shared) + len(cohort) * column
        self._count(cohort, leg.draw, floats_down, len(cohort) * leg.floats_up(*shared))

    def carry(self, job: Job, route: Route) -> tuple[Tensor, ...]:
        """Compute the columns of a relay; returns the sums of what their last clients upload."""
        parts = route.parts(len(self._cuts(len(route.there))))
        blocks = [Block(clients, seeds, (torch.from_numpy(steps),)) for clients, seeds, steps in parts]
        return self.federation.backend.run(job, blocks).sums

    def _asked(self, cohort: Cohort) -> Seeds:
        """The seeds of a cohort for a communication that happens now."""
        federation, again = self.federation, self.ledger.ask(cohort)
        if again:  # the wait for the first answer was counted when the cohort was sampled
            federation.meter.waited += federation.availability.wait(self.rng, again)
        return draw_seeds(self.rng, len(cohort))

    def _told(self, cohort: Cohort, shared: tuple[Tensor, ...]) -> int:
        """The number of floats to send to a cohort so that all its clients know the shared tensors."""
        return sum([self.ledger.tell(cohort, part) * part.numel() for part in shared])

    def _count(self, cohort: Cohort, draw: Draws, floats_down: int, floats_up: int) -> None:
        federation = self.federation
        federation.meter.count(samples_drawn(federation.data, draw, cohort.ids), floats_down, floats_up)

    def _cuts(self, size: int) -> list[slice]:
        """Blocks of nearly equal size, at most `block_size` slots; a small cohort has as many blocks as one of n."""
        width = self.federation.block_size
        count = max(-(-size // width), min(size, -(-self.federation.cohort_size // width)))
        return [slice(size * i // count, size * (i + 1) // count) for i in range(count)]
