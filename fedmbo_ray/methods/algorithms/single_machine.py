"""The single-machine methods that the federated ones come from: compositions to be run with n = m = 1.

Where every oracle may be replaced by its mean over a cohort, they run with more clients, too. F2SA has its own file.
"""

from typing import ClassVar

from fedmbo_ray.core.cards import CODE, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.methods.algorithms.double_loop import DoubleLoop
from fedmbo_ray.methods.algorithms.local_bsg import LocalBSGVRM
from fedmbo_ray.methods.algorithms.soba import DSOBA
from fedmbo_ray.methods.curvature import Given, NeumannScale, PowerIteration
from fedmbo_ray.methods.hypergradients.ihgp import IHGP
from fedmbo_ray.methods.hypergradients.ihgp_sum import IHGPSum
from fedmbo_ray.methods.hypergradients.linear_sgd import LinearSGD
from fedmbo_ray.methods.hypergradients.local_neumann import NeumannForm
from fedmbo_ray.methods.lower.minibatch_sgd import MinibatchSGD
from fedmbo_ray.methods.schedules import Constant, Decay, StepSize

RANDOM_TERM = Cost("T + 2 + D", "(T + 1)*(p + q) + (1 + D)*(p + 2*q)", "T*q + (1 + D)*q + p")


@settings
class BSA(DoubleLoop):
    """T steps of SGD on y, one random term of the Neumann series, both step sizes ∝ k^{-1/2}."""

    card: ClassVar[Card] = Card("Ghadimi, Wang 2018 (BSA)", CODE, RANDOM_TERM)

    lower: MinibatchSGD = MinibatchSGD(steps=10, step_size=Decay(0.5, 0.5, 100.0), batch_size=64)
    hypergradient: IHGP = IHGP(terms=10, batch_size=64)
    step_size: StepSize = Decay(0.05, 0.5, 100.0)
    smoothness: NeumannScale = PowerIteration()


@settings
class TTSA(DoubleLoop):
    """One step on y per step on x, on two time scales: β ∝ k^{-2/5}, α ∝ k^{-3/5}."""

    card: ClassVar[Card] = Card("Hong, Wai, Wang, Yang 2023 (TTSA)", CODE, RANDOM_TERM)

    lower: MinibatchSGD = MinibatchSGD(steps=1, step_size=Decay(0.5, 2 / 5, 100.0), batch_size=64)
    hypergradient: IHGP = IHGP(terms=10, batch_size=64)
    step_size: StepSize = Decay(0.05, 3 / 5, 100.0)
    smoothness: NeumannScale = PowerIteration()


@settings
class StocBiO(DoubleLoop):
    """T steps of SGD on y, the whole Neumann sum, constant step sizes."""

    card: ClassVar[Card] = Card(
        "Ji, Yang, Liang 2021 (stocBiO)",
        CODE,
        Cost("T + N + 1", "(T + 1)*(p + q) + N*(p + 2*q)", "T*q + N*q + p"),
    )

    lower: MinibatchSGD = MinibatchSGD(steps=10, step_size=Constant(0.3), batch_size=64)
    hypergradient: IHGPSum = IHGPSum(terms=11, batch_size=64)
    step_size: StepSize = Constant(0.05)
    smoothness: NeumannScale = PowerIteration()


@settings
class AmIGO(DoubleLoop):
    """T steps of SGD on y, Q on the linear system for v, both from where the last round stopped."""

    card: ClassVar[Card] = Card(
        "Arbel, Mairal 2022 (AmIGO)",
        CODE,
        Cost("T + Q + 1", "T*(p + q) + (Q + 1)*(p + 2*q)", "T*q + Q*q + p"),
    )

    lower: MinibatchSGD = MinibatchSGD(steps=10, step_size=Constant(0.3), batch_size=64)
    hypergradient: LinearSGD = LinearSGD(steps=10, step_size=Constant(0.1), batch_size=64)
    step_size: StepSize = Constant(0.05)
    smoothness: NeumannScale = Given(1.0)  # not used


@settings
class SOBA(DSOBA):
    """Simultaneous steps on x, y and v, all ∝ k^{-1/2}."""

    card: ClassVar[Card] = Card("Dagréou et al. 2022 (SOBA)", CODE, Cost("1", "p + 2*q", "p + 2*q"))

    step_size: StepSize = Decay(0.05, 0.5, 100.0)
    lower_step_size: StepSize = Decay(0.5, 0.5, 100.0)
    system_step_size: StepSize = Decay(0.1, 0.5, 100.0)
    batch_size: Count = 64


STORM = Cost("1", "2*p + 2*q + 1", "2*p + 2*q")


@settings
class SUSTAIN(LocalBSGVRM):
    """STORM momenta of ∇_y g and of a hypergradient with one random Neumann term, on samples that two points share."""

    card: ClassVar[Card] = Card("Khanduri et al. 2021 (SUSTAIN)", CODE, STORM, "one", "no")

    local_steps: Count = 1
    terms: Count = 10
    batch_size: Count = 64


@settings
class MRBO(LocalBSGVRM):
    """SUSTAIN with the whole Neumann sum."""

    card: ClassVar[Card] = Card("Yang, Ji, Liang 2021 (MRBO)", CODE, STORM, "one", "no")

    local_steps: Count = 1
    terms: Count = 11
    batch_size: Count = 64
    series: NeumannForm = "sum"
