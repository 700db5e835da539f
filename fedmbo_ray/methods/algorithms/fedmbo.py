"""FedMBO (Huang, Zhang, Ji 2023): minibatch SGD below, the parallel hypergradient estimator above."""

from typing import ClassVar

from fedmbo_ray.core.cards import PAPER, Card, Cost
from fedmbo_ray.core.settings import settings
from fedmbo_ray.methods.algorithms.double_loop import DoubleLoop
from fedmbo_ray.methods.curvature import NeumannScale, PowerIteration
from fedmbo_ray.methods.hypergradients.phe import PHE
from fedmbo_ray.methods.lower.minibatch_sgd import MinibatchSGD
from fedmbo_ray.methods.schedules import Constant, StepSize


@settings
class FedMBO(DoubleLoop):
    """Algorithm 1 of the paper with its errors corrected: linear speed-up in n, for clients that differ."""

    card: ClassVar[Card] = Card(
        "Huang, Zhang, Ji 2023 (FedMBO)",
        PAPER,
        Cost("T + 2 + D_max", "(T + 1)*(p + q) + (1 + D_mean)*(p + 2*q)", "T*q + (1 + D_mean)*q + p"),
    )

    lower: MinibatchSGD = MinibatchSGD(steps=5, step_size=Constant(0.5), batch_size=32)
    hypergradient: PHE = PHE(terms=5, batch_size=32)
    step_size: StepSize = Constant(0.05)
    smoothness: NeumannScale = PowerIteration()
