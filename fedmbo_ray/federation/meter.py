"""What the federated protocol costs."""

from dataclasses import asdict, dataclass

from torch import Tensor

from fedmbo_ray.data.batches import ClientData, ClientIds, Draw
from fedmbo_ray.federation.execution import Job
from fedmbo_ray.federation.reduction import Part


@dataclass
class Meter:
    """What the federated protocol has cost so far; floats count everything a client receives or sends.

    A sample counts once when it is drawn, even if two gradients use it or a random depth leaves it unused. All local
    data count once for each local step on them.
    """

    communications: int = 0
    samples: int = 0
    floats_up: int = 0
    floats_down: int = 0
    dropped: int = 0  # slots whose client did not answer
    waited: float = 0.0  # simulated seconds spent on the slowest client of each cohort

    def count(self, data: ClientData, job: Job, clients: ClientIds, floats_down: int, result: Part[Tensor]) -> None:
        """One communication, in which the slots of these clients together were sent `floats_down`."""
        draws = job.draw if isinstance(job.draw, tuple) else (job.draw,)
        rows = result.rows[0]
        uploads = result.sums or [part[0] for part in rows[: len(rows) - job.own]]
        per_slot = sum([out.numel() for out in uploads])
        self.communications += 1
        self.samples += sum([data.samples(clients, draw) for draw in draws if isinstance(draw, Draw)])
        self.floats_down += floats_down
        self.floats_up += len(clients) * per_slot

    def state(self) -> dict[str, float]:
        return asdict(self)
