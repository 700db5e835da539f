"""Federated bilevel optimization on Ray: FedMBO and the methods it is compared with.

Names are imported when they are first used, so `import fedmbo_ray` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedmbo_ray.api.experiment import run_experiment as run_experiment
    from fedmbo_ray.api.load import load as load
    from fedmbo_ray.api.run import Run as Run
    from fedmbo_ray.api.study import Study as Study
    from fedmbo_ray.api.study import run_study as run_study
    from fedmbo_ray.api.sweep import Sweep as Sweep
    from fedmbo_ray.api.sweep import run_sweep as run_sweep
    from fedmbo_ray.config.schema import RunConfig as RunConfig
    from fedmbo_ray.core.cards import Card as Card
    from fedmbo_ray.core.cards import Cost as Cost
    from fedmbo_ray.core.errors import ConfigError as ConfigError
    from fedmbo_ray.core.errors import DownloadError as DownloadError
    from fedmbo_ray.core.errors import FedmboError as FedmboError
    from fedmbo_ray.core.errors import FolderDamaged as FolderDamaged
    from fedmbo_ray.core.errors import FolderInUse as FolderInUse
    from fedmbo_ray.core.errors import RunFailed as RunFailed
    from fedmbo_ray.core.rng import stream as stream
    from fedmbo_ray.core.settings import Count as Count
    from fedmbo_ray.core.settings import NonNegative as NonNegative
    from fedmbo_ray.core.settings import Positive as Positive
    from fedmbo_ray.core.settings import Probability as Probability
    from fedmbo_ray.core.settings import settings as settings
    from fedmbo_ray.data.array_clients import Federated as Federated
    from fedmbo_ray.data.batches import Batch as Batch
    from fedmbo_ray.data.batches import ClientData as ClientData
    from fedmbo_ray.data.batches import Draw as Draw
    from fedmbo_ray.data.batches import Integers as Integers
    from fedmbo_ray.data.batches import Samples as Samples
    from fedmbo_ray.data.batches import Trait as Trait
    from fedmbo_ray.data.batches import unstack as unstack
    from fedmbo_ray.data.dataset import Dataset as Dataset
    from fedmbo_ray.federation.clients import Clients as Clients
    from fedmbo_ray.federation.cohort import Cohort as Cohort
    from fedmbo_ray.federation.relay import Leg as Leg
    from fedmbo_ray.federation.rounds import Round as Round
    from fedmbo_ray.methods.base import Averaging as Averaging
    from fedmbo_ray.methods.base import Keeping as Keeping
    from fedmbo_ray.methods.base import Reporting as Reporting
    from fedmbo_ray.methods.base import State as State
    from fedmbo_ray.methods.curvature import NeumannScale as NeumannScale
    from fedmbo_ray.methods.schedules import Constant as Constant
    from fedmbo_ray.methods.schedules import StepSize as StepSize
    from fedmbo_ray.methods.schedules import StepsPerClient as StepsPerClient
    from fedmbo_ray.problems import oracles as oracles
    from fedmbo_ray.problems.base import Capabilities as Capabilities
    from fedmbo_ray.problems.base import Problem as Problem
    from fedmbo_ray.problems.base import Task as Task
    from fedmbo_ray.problems.two_losses import DataInfo as DataInfo
    from fedmbo_ray.problems.two_losses import TwoLosses as TwoLosses

__version__ = "0.2.0"

_ROOMS = {
    "Card": "core.cards",
    "Cost": "core.cards",
    "ConfigError": "core.errors",
    "DownloadError": "core.errors",
    "FedmboError": "core.errors",
    "FolderDamaged": "core.errors",
    "FolderInUse": "core.errors",
    "RunFailed": "core.errors",
    "stream": "core.rng",
    "Count": "core.settings",
    "NonNegative": "core.settings",
    "Positive": "core.settings",
    "Probability": "core.settings",
    "settings": "core.settings",
    "Batch": "data.batches",
    "ClientData": "data.batches",
    "Draw": "data.batches",
    "Federated": "data.array_clients",
    "Integers": "data.batches",
    "Samples": "data.batches",
    "Trait": "data.batches",
    "unstack": "data.batches",
    "Dataset": "data.dataset",
    "Capabilities": "problems.base",
    "Problem": "problems.base",
    "Task": "problems.base",
    "DataInfo": "problems.two_losses",
    "TwoLosses": "problems.two_losses",
    "Clients": "federation.clients",
    "Cohort": "federation.cohort",
    "Leg": "federation.relay",
    "Round": "federation.rounds",
    "Averaging": "methods.base",
    "Keeping": "methods.base",
    "Reporting": "methods.base",
    "State": "methods.base",
    "NeumannScale": "methods.curvature",
    "Constant": "methods.schedules",
    "StepSize": "methods.schedules",
    "StepsPerClient": "methods.schedules",
    "RunConfig": "config.schema",
    "Run": "api.run",
    "run_sweep": "api.sweep",
    "Sweep": "api.sweep",
    "run_study": "api.study",
    "Study": "api.study",
    "load": "api.load",
    "run_experiment": "api.experiment",
}
__all__ = ["__version__", "oracles", *_ROOMS]


def __getattr__(name: str) -> object:
    if name == "oracles":
        return import_module("fedmbo_ray.problems.oracles")
    if name not in _ROOMS:
        raise AttributeError(f"module 'fedmbo_ray' has no attribute {name!r}")
    return getattr(import_module(f"fedmbo_ray.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
