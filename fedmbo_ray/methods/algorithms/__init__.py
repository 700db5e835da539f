"""Algorithms by the name a config gives them; a state is a dict of tensors with at least x and y."""

from typing import Annotated, Protocol

from torch import Tensor

from fedmbo_ray.algorithms.adafbio import AdaFBiO
from fedmbo_ray.algorithms.aggitd import AggITD
from fedmbo_ray.algorithms.double_loop import DoubleLoop
from fedmbo_ray.algorithms.draws import HypergradientDraws, LowerDraws
from fedmbo_ray.algorithms.e_aipod import EAiPOD
from fedmbo_ray.algorithms.f2sa import F2SA
from fedmbo_ray.algorithms.fedbio import FedBiO, FedBiOAcc
from fedmbo_ray.algorithms.fedmbo import FedMBO
from fedmbo_ray.algorithms.fedmsa import FedMSA
from fedmbo_ray.algorithms.fednest import FedNest, FedNestSGD
from fedmbo_ray.algorithms.lfednest import LFedNest, LFedNestSVRG
from fedmbo_ray.algorithms.local_bsg import LocalBSGM, LocalBSGVRM
from fedmbo_ray.algorithms.simfbo import MemFBO, ShroFBO, SimFBO
from fedmbo_ray.algorithms.single_machine import BSA, MRBO, SOBA, SUSTAIN, TTSA, AmIGO, StocBiO
from fedmbo_ray.algorithms.soba import DSOBA, MASOBA
from fedmbo_ray.federation import Clients
from fedmbo_ray.registry import Component, Registry

State = dict[str, Tensor]


class Algorithm(Protocol):
    """May also have ``figures(state, rounds)``: numbers by name for the record after so many rounds."""

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State: ...

    def round(self, clients: Clients, state: State) -> State:
        """One outer iteration; returns a new state and leaves the old one as it was."""
        ...


ALGORITHMS = Registry(
    "algorithm",
    "algorithms",
    ("init", "round"),
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
        "hypergradient_draws": HypergradientDraws,
        "lower_draws": LowerDraws,
    },
)

AnyAlgorithm = Annotated[Algorithm, Component(ALGORITHMS)]
