"""FedNest and FedNest_SGD (Tarzanagh, Li, Thrampoulidis, Oymak 2022): FedInn below, IHGP and FedOut above."""

from typing import ClassVar, Literal

from fedmbo_ray.core.cards import CODE, Card, Cost
from fedmbo_ray.core.settings import settings
from fedmbo_ray.methods.algorithms.double_loop import DoubleLoop
from fedmbo_ray.methods.curvature import NeumannScale, PowerIteration
from fedmbo_ray.methods.hypergradients.ihgp import IHGP
from fedmbo_ray.methods.lower.fedavg import FedAvg
from fedmbo_ray.methods.lower.fedsvrg import FedSVRG
from fedmbo_ray.methods.outer import FedOut
from fedmbo_ray.methods.schedules import Constant, StepSize


@settings
class FedNest(DoubleLoop):
    """T × FedSVRG on y; p by IHGP; h = mean_C[∇_x f_i − ∇²_xy g_i p]; local x steps corrected towards h.

    One cohort serves the whole upper level and is told x and y once, as in the authors' code; the paper has full
    participation, and with fewer clients that cohort's own Hessian biases h (`cohort: fresh` avoids it). The Neumann
    series is the paper's random term, where the code sums all of them.
    """

    card: ClassVar[Card] = Card(
        "Tarzanagh et al. 2022 (FedNest)",
        CODE,
        Cost("2*T + D + 3", "T*(p + 2*q) + 2*p + q + (1 + D)*q", "T*2*q + (1 + D)*q + 2*p"),
    )

    lower: FedSVRG = FedSVRG(steps=1, local_steps=5, step_size=Constant(0.05), batch_size=32)
    hypergradient: IHGP = IHGP(terms=5, batch_size=32)
    outer: FedOut = FedOut(local_steps=1, batch_size=32)
    step_size: StepSize = Constant(0.02)
    smoothness: NeumannScale = PowerIteration()
    cohort: Literal["fresh", "fixed", "all"] = "fixed"


@settings
class FedNestSGD(FedNest):
    """FedNest with FedAvg on y: half of the inner communications, and FedAvg's drift when clients differ."""

    card: ClassVar[Card] = FedNest.card._replace(
        cost=Cost("T + D + 3", "T*(p + q) + 2*p + q + (1 + D)*q", "T*q + (1 + D)*q + 2*p"), heterogeneity="drift"
    )

    lower: FedAvg = FedAvg(steps=1, local_steps=5, step_size=Constant(0.05), batch_size=32)  # type: ignore[assignment]
