"""The typed form of a config: what its sections and keys are, and what they may hold."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Lt
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from fedmbo_ray.algorithms import AnyAlgorithm
from fedmbo_ray.availability import Unreliable
from fedmbo_ray.datasets import DATASETS
from fedmbo_ray.partitions import AnyPartition, ByDigits
from fedmbo_ray.problems import PROBLEMS, makes_own_data
from fedmbo_ray.problems.base import ProblemSettings
from fedmbo_ray.registry import Component, ConfigError, Count, NonNegative, Positive, Probability, at, parts_of


def _as_ray_counts(share: float) -> float:
    if 0 < share < 1e-4:
        raise ValueError(f"a share must be 0 or at least 0.0001, as Ray counts, but got {share}")
    return share


Share = Annotated[NonNegative, AfterValidator(_as_ray_counts)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataConfig(Section):
    """Which data set, and how it is spread over the clients."""

    name: Literal[*DATASETS] = "digits"  # type: ignore[valid-type]
    partition: AnyPartition = Field(default_factory=ByDigits)
    validation: Annotated[float, Gt(0), Lt(1)] = 0.2  # fraction of each client's rows
    label_noise: Probability = 0.0  # fraction of training labels replaced by others
    root: Path | None = None  # where data sets are kept; by default $FEDMBO_DATA or the user's cache


class ClientsConfig(Section):
    """Who takes part in a communication, and where its clients are computed."""

    num_clients: Count = 100  # m
    cohort_size: Count = 10  # n
    replace: bool = True
    availability: Unreliable | None = None
    block_size: Count = 5  # slots computed by one call; changes the last bits of a run
    backend: Literal["in_process", "ray"] = "in_process"
    actors: Count = 2
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
    """How often a run reports and saves itself."""

    every: Count = 10  # rounds between two records
    averaged: tuple[str, ...] = ()  # exact figures whose mean over all rounds so far is recorded, as mean_<figure>
    loss_samples: Count = 5000  # samples behind lower_loss and upper_loss, spread evenly over clients
    checkpoint_every: Count = 50  # rounds between two checkpoints
    checkpoints_kept: Count = 2
    explosion: Positive = 1e6  # a run has diverged when |x| or |y| exceeds this


class RunConfig(Section):
    """Everything that decides what a run computes, and where."""

    seed: Annotated[int, Ge(0)] = 0
    rounds: Count = 200  # K
    problem: Annotated[ProblemSettings, Component(PROBLEMS)]
    data: DataConfig | None = None
    clients: ClientsConfig = ClientsConfig()
    algorithm: AnyAlgorithm
    record: RecordConfig = RecordConfig()

    @model_validator(mode="before")
    @classmethod
    def _data_where_needed(cls, fields: Any) -> Any:
        if makes_own_data(fields.get("problem")):
            if fields.get("data") is not None:
                raise ValueError("this problem makes its own data: leave `data` out (data=null)")
            return fields
        return {**fields, "data": DataConfig() if fields.get("data") is None else fields["data"]}

    @model_validator(mode="after")
    def _enough_take_part(self) -> "RunConfig":
        m, n = self.clients.num_clients, self.clients.cohort_size
        for path, part in parts_of(self.algorithm, "algorithm"):
            needed = part.card.participation if hasattr(part, "card") else "partial"
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
        """No schedule grows, so what holds in the first round holds in all."""
        if hasattr(self.algorithm, "weights"):
            first = SimpleNamespace(round=0, rounds=self.rounds, cohort_size=self.clients.cohort_size)
            with at("algorithm"):
                self.algorithm.weights(first)
        return self

    def resolved(self) -> dict[str, Any]:
        """Plain values, every default filled in; reading them back gives an equal config."""
        return self.model_dump(mode="json")


# What may differ between a run and its continuation: none of it changes a bit of the result.
EXECUTION = ("clients.backend", "clients.actors", "clients.cpus_per_actor", "clients.gpus_per_actor", "data.root")
