"""E-AiPOD (Xiao, Shen, Yin, Chen 2023): ProxSkip below, FedOut above."""

from typing import ClassVar, Literal

from fedmbo_ray.core.cards import CODE, Card, Cost
from fedmbo_ray.core.settings import settings
from fedmbo_ray.methods.algorithms.double_loop import DoubleLoop
from fedmbo_ray.methods.curvature import NeumannScale, PowerIteration
from fedmbo_ray.methods.hypergradients.ihgp import IHGP
from fedmbo_ray.methods.lower.proxskip import ProxSkip
from fedmbo_ray.methods.outer import FedOut
from fedmbo_ray.methods.schedules import Constant, StepSize


@settings
class EAiPOD(DoubleLoop):
    """Consensus below as an equality constraint, met by ProxSkip at random times; the upper level is FedNest's, of all.

    Departures from the authors' code: y_i are averaged before the upper level, which the code evaluates at each y_i;
    and IHGP has its random depth, where the code takes a fixed number of steps.
    """

    card: ClassVar[Card] = Card(
        "Xiao, Shen, Yin, Chen 2023 (AiPOD)",
        CODE,
        Cost("R + D + 3", "2*p + (R + D + 2)*q", "(R + D + 1)*q + 2*p"),
        participation="full",
    )

    lower: ProxSkip = ProxSkip(steps=20, probability=0.1, step_size=Constant(0.05), batch_size=32)
    hypergradient: IHGP = IHGP(terms=5, batch_size=32)
    outer: FedOut = FedOut(local_steps=1, batch_size=32)
    step_size: StepSize = Constant(0.02)
    smoothness: NeumannScale = PowerIteration()
    cohort: Literal["fresh", "fixed", "all"] = "all"
