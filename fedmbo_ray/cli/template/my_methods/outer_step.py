"""Template of an outer step: a class with ``step(clients, x, y, h, step_size)``, which returns the next x."""

from typing import ClassVar

from torch import Tensor

from fedmbo_ray import Card, Clients, Cost, settings


@settings
class Signed:
    """x − α·sign(h); every entry moves by α, so α must be much smaller than for a plain step."""

    card: ClassVar[Card] = Card("Bernstein et al. 2018 (signSGD)", "ours", Cost("0", "0", "0"))

    def step(self, clients: Clients, x: Tensor, y: Tensor, h: Tensor, step_size: float) -> Tensor:
        return x - step_size * h.sign()
