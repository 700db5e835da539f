"""What the federated protocol costs."""

from dataclasses import asdict, dataclass


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

    def count(self, samples: int, floats_down: int, floats_up: int) -> None:
        """Count one communication."""
        self.communications += 1
        self.samples += samples
        self.floats_down += floats_down
        self.floats_up += floats_up

    def state(self) -> dict[str, float]:
        return asdict(self)
