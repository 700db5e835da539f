"""When a run ends: after its rounds, or after the round in which a part of its budget is used up."""

from typing import NamedTuple

from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.runs.records import Record


def used(record: Record) -> dict[str, float]:
    """What a run has used up at a record, by the names of limits; None counts as 0."""
    amounts = {
        "rounds": record["round"],
        "communications": record["communications"],
        "floats": record["floats_up"] + record["floats_down"],
        "samples": record["samples"],
        "data_epochs": record.get("data_epochs"),
        "seconds": record["wall_seconds"],
    }
    return {name: amount or 0.0 for name, amount in amounts.items()}


class Limits(NamedTuple):
    """How much a run may use up, by name."""

    amounts: dict[str, float]

    @staticmethod
    def of(config: RunConfig) -> "Limits":
        budget = {} if config.budget is None else config.budget.model_dump()
        amounts = {"rounds": config.rounds, **budget}
        return Limits({name: amount for name, amount in amounts.items() if amount is not None})

    def ended_by(self, record: Record) -> str | None:
        """The name of a limit that is reached; None if there is none."""
        now = used(record)
        return next((name for name, amount in self.amounts.items() if now[name] >= amount), None)

    def share(self, record: Record) -> float:
        """The share of the run that is done at a record, between 0 and 1, by the nearest limit."""
        now = used(record)
        return min(1.0, max(now[name] / amount for name, amount in self.amounts.items()))

    @property
    def text(self) -> str:
        """The limits as text: "200 rounds, or 440 communications"."""
        return ", or ".join(f"{amount:g} {name.replace('_', ' ')}" for name, amount in self.amounts.items())
