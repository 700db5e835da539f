"""The typed form of a YAML config: RunConfig, and how files and `key.path=value` words become one."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from annotated_types import Ge, Gt, Lt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedmbo_ray.algorithms import AnyAlgorithm
from fedmbo_ray.availability import Unreliable
from fedmbo_ray.datasets import DATASETS
from fedmbo_ray.partitions import AnyPartition, ByDigits
from fedmbo_ray.problems import PROBLEMS, Quadratic
from fedmbo_ray.problems.base import ProblemSettings
from fedmbo_ray.registry import Component, ConfigError, choices, construct

Count = Annotated[int, Ge(1)]
Positive = Annotated[float, Gt(0)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataConfig(Section):
    """Which data set, and how it is spread over the clients."""

    name: Literal[*DATASETS] = "digits"  # type: ignore[valid-type]
    partition: AnyPartition = Field(default_factory=ByDigits)
    validation: Annotated[float, Gt(0), Lt(1)] = 0.2  # fraction of each client's rows
    label_noise: Annotated[float, Ge(0), Lt(1)] = 0.0  # fraction of training labels replaced by others
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
    cpus_per_actor: Annotated[float, Ge(0)] = 1.0
    gpus_per_actor: Annotated[float, Ge(0)] = 0.0

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
        problem = fields.get("problem")
        name = problem.get("name") if isinstance(problem, dict) else problem
        if isinstance(problem, Quadratic) or name == "quadratic":
            if fields.get("data") is not None:
                raise ValueError("the problem 'quadratic' makes its own data: leave `data` out")
            return fields
        return {**fields, "data": fields.get("data") or {}}

    def resolved(self) -> dict[str, Any]:
        """Plain values, every default filled in; reading them back gives an equal config."""
        return self.model_dump(mode="json")


# What may differ between a run and its continuation: none of it changes a bit of the result.
EXECUTION = ("clients.backend", "clients.actors", "clients.cpus_per_actor", "clients.gpus_per_actor")


def read_config(path: Path | None, overrides: list[str]) -> RunConfig:
    """The config in a YAML file (the shipped default if None), changed by `key.path=value` words."""
    fields = read_yaml(path)
    for word in overrides:
        override(fields, word)
    return construct(RunConfig, fields)


def read_yaml(path: Path | None) -> dict[str, Any]:
    name = path or "the default config"
    try:
        text = files("fedmbo_ray").joinpath("default.yaml").read_text() if path is None else path.read_text()
        fields = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"can't read {name}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{name} must be a mapping of keys to values, but is {type(fields).__name__}")
    return fields


def override(fields: dict[str, Any], word: str) -> None:
    """Set `key.path=value` in nested mappings; the value is read as YAML.

    A new name for a component drops the parameters of the old one: they belong to another class.
    """
    path, equals, text = word.partition("=")
    *parents, key = path.split(".")
    if not equals or not all([*parents, key]):
        raise ConfigError(f"an override must read key.path=value, but got {word!r}")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"the value of {word!r} is not YAML") from None
    for parent in parents:
        inner = fields.get(parent)
        if isinstance(inner, str):
            inner = {"name": inner}
        fields[parent] = inner = dict(inner) if isinstance(inner, dict) else {}
        fields = inner
    if key == "name" and fields.get("name") != value:
        fields.clear()
    fields[key] = value


def differences(old: dict[str, Any], new: dict[str, Any], path: str = "") -> list[str]:
    """The key paths at which two resolved configs differ."""
    found = []
    for key in sorted(old.keys() | new.keys()):
        here, a, b = f"{path}{key}", old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{here}.")
        elif a != b:
            found.append(here)
    return found


__all__ = ["EXECUTION", "RunConfig", "choices", "differences", "override", "read_config"]
