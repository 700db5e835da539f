"""Algorithms by the name a config gives them."""

from typing import Annotated

from fedmbo_ray.core.components import Component
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.methods.algorithms.adafbio import AdaFBiO
from fedmbo_ray.methods.algorithms.aggitd import AggITD
from fedmbo_ray.methods.algorithms.double_loop import DoubleLoop
from fedmbo_ray.methods.algorithms.e_aipod import EAiPOD
from fedmbo_ray.methods.algorithms.f2sa import F2SA
from fedmbo_ray.methods.algorithms.fedbio import FedBiO, FedBiOAcc
from fedmbo_ray.methods.algorithms.fedbio_local import FedBiOAccLocal, FedBiOLocal
from fedmbo_ray.methods.algorithms.fedmbo import FedMBO
from fedmbo_ray.methods.algorithms.fedmsa import FedMSA
from fedmbo_ray.methods.algorithms.fednest import FedNest, FedNestSGD
from fedmbo_ray.methods.algorithms.lfednest import LFedNest, LFedNestSVRG
from fedmbo_ray.methods.algorithms.lfednest_local import LFedNestLocal
from fedmbo_ray.methods.algorithms.local_bsg import LocalBSGM, LocalBSGVRM
from fedmbo_ray.methods.algorithms.probes import HypergradientDraws, LowerDraws
from fedmbo_ray.methods.algorithms.simfbo import MemFBO, ShroFBO, SimFBO
from fedmbo_ray.methods.algorithms.single_level import SingleLevel
from fedmbo_ray.methods.algorithms.single_machine import BSA, MRBO, SOBA, SUSTAIN, TTSA, AmIGO, StocBiO
from fedmbo_ray.methods.algorithms.soba import DSOBA, MASOBA
from fedmbo_ray.methods.base import Algorithm

ALGORITHMS = Registry(
    "algorithm",
    "algorithms",
    Algorithm,
    {
        "double_loop": DoubleLoop,
        "fedmbo": FedMBO,
        "fednest": FedNest,
        "fednest_sgd": FedNestSGD,
        "lfednest": LFedNest,
        "lfednest_svrg": LFedNestSVRG,
        "adafbio": AdaFBiO,
        "local_bsgm": LocalBSGM,
        "local_bsgvrm": LocalBSGVRM,
        "fedbio": FedBiO,
        "fedbioacc": FedBiOAcc,
        "fedbio_local": FedBiOLocal,
        "fedbioacc_local": FedBiOAccLocal,
        "lfednest_local": LFedNestLocal,
        "simfbo": SimFBO,
        "shrofbo": ShroFBO,
        "memfbo": MemFBO,
        "d_soba": DSOBA,
        "ma_soba": MASOBA,
        "fedmsa": FedMSA,
        "e_aipod": EAiPOD,
        "aggitd": AggITD,
        "bsa": BSA,
        "ttsa": TTSA,
        "stocbio": StocBiO,
        "amigo": AmIGO,
        "soba": SOBA,
        "sustain": SUSTAIN,
        "mrbo": MRBO,
        "f2sa": F2SA,
        "single_level": SingleLevel,
        "hypergradient_draws": HypergradientDraws,
        "lower_draws": LowerDraws,
    },
)

AnyAlgorithm = Annotated[Algorithm, Component(ALGORITHMS)]
