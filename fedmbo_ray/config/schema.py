"""The sections, keys and allowed values of a config."""

from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator

from fedmbo_ray.core.cards import card_of
from fedmbo_ray.core.components import Component, Fields, parts_of
from fedmbo_ray.core.errors import ConfigError, at
from fedmbo_ray.core.settings import Count, NonNegative, Positive, Probability, require_json
from fedmbo_ray.data.dataset import Dataset
from fedmbo_ray.data.datasets import ABOUT, DATASETS, check_name, data_root, load_dataset
from fedmbo_ray.data.partitions import IID, AnyPartition, ByDigits, Natural, Partition
from fedmbo_ray.data.sources import KEYS, READERS, Source, read_source
from fedmbo_ray.federation.availability import Unreliable
from fedmbo_ray.federation.rounds import Round
from fedmbo_ray.methods.algorithms import AnyAlgorithm
from fedmbo_ray.methods.base import check_weights
from fedmbo_ray.methods.schedules import uses_horizon
from fedmbo_ray.problems import PROBLEMS, makes_own_data
from fedmbo_ray.problems.base import ProblemSettings

MOST_ACTORS = 10_000  # of a run, and cores or GPUs of one of them; a cluster of Ray's has no more


def _as_ray_counts(share: float) -> float:
    if 0 < share < 1e-4:
        raise ValueError(f"a share must be 0 or at least 0.0001, Ray's smallest unit, but got {share}")
    return share


def _absolute(path: Path) -> Path:
    """The same for a process that works in another folder, and for a run that is continued from one."""
    return path.expanduser().absolute()


def _part_or_place(test: object) -> object:
    if isinstance(test, int | float) and not 0 < test < 1:
        raise ValueError(f"must be a fraction between 0 and 1, or a file, but got {test}")
    return test


def _several(names: object) -> object:
    """A single name as a list of one."""
    return (names,) if isinstance(names, str) else names


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Names = Annotated[tuple[str, ...], BeforeValidator(_several)]
Share = Annotated[NonNegative, Le(MOST_ACTORS), AfterValidator(_as_ray_counts)]
Amount = Annotated[int, Strict(), Ge(1)]  # a Count without an upper limit, since floats are many


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def default_partition(data: Fields) -> Partition:
    """By clients where the data have some, two labels per client for the shipped images, iid for anything else."""
    name = data.get("name", "digits")
    if data.get("client") or (name in ABOUT and ABOUT[name].clients):
        return Natural()
    return ByDigits() if name in ABOUT else IID()


class DataConfig(Section):
    """Which data set, and how it is distributed over the clients."""

    name: str = "digits"  # of the catalogue; file, images or huggingface; or package.module:function
    path: AbsolutePath | None = None  # of a file or a folder
    target: str | None = None  # the column to predict
    client: str | None = None  # the column of client ids
    group: str | None = None  # the column of groups, for problems about fairness
    test: Annotated[float | AbsolutePath | None, BeforeValidator(_part_or_place)] = None  # a fraction, or rows
    predict: Literal["labels", "numbers"] | None = None  # what targets are, where they don't say it themselves
    categories: Names = ()  # columns to encode with a feature for each value
    size: tuple[Count, Count] | None = None  # height and width to give all images
    arguments: Annotated[dict[str, Any], AfterValidator(require_json)] = Field(default_factory=dict)  # of a function
    partition: AnyPartition = Field(default_factory=default_partition)
    validation: Annotated[float, Gt(0), Lt(1)] = 0.2  # fraction of each client's rows
    weights: Literal["equal", "by_size"] = "equal"  # how much a client counts: as in the paper, or by its rows
    label_noise: Probability = 0.0  # fraction of training labels replaced by others
    imbalance: Annotated[float, Ge(1)] = 1.0  # thins classes to a long tail: rows of the first for one of the last
    root: Path | None = None  # where data sets are kept; by default $FEDMBO_DATA or the user's cache

    @model_validator(mode="after")
    def _of_its_kind(self) -> "DataConfig":
        with at("name"):
            check_name(self.name, list(READERS))
        for key in {key for keys in KEYS.values() for key in keys} - {"test"}:
            if getattr(self, key) and key not in KEYS.get(self.name, ()):
                kinds = ", ".join(kind for kind, keys in KEYS.items() if key in keys)
                raise ConfigError(f"is for data.name={kinds} alone, but the name is {self.name!r}", key)
        if self.name in READERS and self.path is None:
            raise ConfigError(f"is required for data.name={self.name}", "path")
        return self

    def load(self) -> Dataset:
        """The data set; what is wrong with it is a ConfigError."""
        if self.name in DATASETS:
            return load_dataset(self.name, self.root or data_root())
        return read_source(Source(**{key: getattr(self, key) for key in Source._fields}))


class ClientsConfig(Section):
    """Who takes part in a communication, and where clients compute."""

    num_clients: Count = 100  # m
    cohort_size: Count = 10  # n
    replace: bool = True
    availability: Unreliable | None = None
    block_size: Count = 5  # slots computed by one call; changes the last bits of a run
    backend: Literal["in_process", "ray"] = "in_process"
    actors: Annotated[Count, Le(MOST_ACTORS)] = 2
    cpus_per_actor: Share = 1.0
    gpus_per_actor: Share = 0.0

    @model_validator(mode="after")
    def _enough_clients(self) -> "ClientsConfig":
        if not self.replace and self.cohort_size > self.num_clients:
            raise ValueError(
                "without replacement `cohort_size <= num_clients` must hold, "
                f"but got cohort_size={self.cohort_size}, num_clients={self.num_clients}"
            )
        return self


class RecordConfig(Section):
    """How often a run makes records and checkpoints."""

    every: Count = 10  # rounds between two records
    averaged: tuple[str, ...] = ()  # exact figures whose mean over all rounds so far is recorded, as mean_<figure>
    exact_every: Count | None = None  # rounds between records with phi, implicit_share and hypergradient_cosine
    loss_samples: Count = 5000  # samples to measure lower_loss and upper_loss, evenly over clients
    checkpoint_every: Count = 50  # rounds between two checkpoints
    checkpoints_kept: Count = 2
    explosion: Positive = 1e6  # a run has diverged when |x| or |y| exceeds this


class BudgetConfig(Section):
    """Limits of a run: it ends after the round in which one of them is reached."""

    communications: Amount | None = None
    floats: Amount | None = None  # up and down
    samples: Amount | None = None
    data_epochs: Positive | None = None  # samples divided by the size of the data
    seconds: Positive | None = None  # of this run alone, not of seeds beside it; its last round differs each time

    @model_validator(mode="after")
    def _of_something(self) -> "BudgetConfig":
        if not self.model_dump(exclude_none=True):
            raise ValueError(f"must limit at least one of {', '.join(type(self).model_fields)}")
        return self


class RunConfig(Section):
    """Everything that defines what a run computes, and where."""

    seed: Annotated[int, Ge(0)] = 0
    rounds: Count | None = None  # K; may be left out if a budget ends the run
    budget: BudgetConfig | None = None
    problem: Annotated[ProblemSettings, Component(PROBLEMS)]
    data: DataConfig | None = None
    clients: ClientsConfig = ClientsConfig()
    algorithm: AnyAlgorithm
    record: RecordConfig = RecordConfig()

    @model_validator(mode="before")
    @classmethod
    def _data_where_needed(cls, fields: Fields) -> Fields:
        data = fields.get("data")
        if makes_own_data(fields.get("problem")):
            if data is not None:
                raise ValueError("this problem makes its own data: leave `data` out (data=null)")
            return fields
        short = {"name": data} if isinstance(data, str) else data
        return {**fields, "data": DataConfig() if data is None else short}

    @model_validator(mode="after")
    def _ends(self) -> "RunConfig":
        if self.rounds is None and self.budget is None:
            raise ConfigError("is required unless a budget ends the run, such as budget.communications=440", "rounds")
        path = horizon_of(self.algorithm)
        if self.rounds is None and path is not None:
            raise ConfigError(f"is required even with a budget, since {path} depends on it", "rounds")
        return self

    @model_validator(mode="after")
    def _enough_take_part(self) -> "RunConfig":
        m, n = self.clients.num_clients, self.clients.cohort_size
        for path, part in parts_of(self.algorithm, "algorithm"):
            card = card_of(part)
            needed = card.participation if card is not None else "partial"
            if needed == "full" and n != m:
                raise ConfigError(
                    f"{type(part).__name__} needs every client in every communication: `cohort_size == num_clients` "
                    f"must hold, but got cohort_size={n}, num_clients={m}; set clients.cohort_size={m}",
                    *path,
                )
            if needed == "one" and (n, m) != (1, 1):
                raise ConfigError(
                    f"{type(part).__name__} is for a single machine: `cohort_size == num_clients == 1` must hold, "
                    f"but got cohort_size={n}, num_clients={m}; see tune_configs/single_machine.yaml",
                    *path,
                )
        return self

    @model_validator(mode="after")
    def _weights_of_momenta(self) -> "RunConfig":
        check_weights(self.algorithm, Round(0, self.rounds, self.clients.cohort_size))
        return self

    def resolved(self) -> Fields:
        """The config as plain values, with every default filled in; reading them gives an equal config."""
        return self.model_dump(mode="json")


def horizon_of(algorithm: AnyAlgorithm) -> str | None:
    """The path of the first step size that depends on K; None if none does."""
    path = uses_horizon(algorithm)
    return None if path is None else ".".join(("algorithm", *path))


# Keys that may differ between a run and its continuation: they don't change the result.
EXECUTION = ("clients.backend", "clients.actors", "clients.cpus_per_actor", "clients.gpus_per_actor", "data.root")
# Keys that only decide when a run ends; they may differ, too, if no step size depends on them.
LENGTH = ("rounds", "budget", *(f"budget.{name}" for name in BudgetConfig.model_fields))
