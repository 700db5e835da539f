"""Checks whether the run in a folder may continue with a config: unchanged, or longer."""

from fedmbo_ray.config.overrides import changes
from fedmbo_ray.config.schema import EXECUTION, LENGTH, RunConfig, horizon_of
from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.io import read_yaml
from fedmbo_ray.runs.checkpoint import Checkpoint, without_ending
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.limits import Limits, used
from fedmbo_ray.runs.records import Record


def require_continuable(folder: RunFolder, config: RunConfig) -> None:
    """Raise a ConfigError unless the continued run gives the same result as a new run with `config`."""
    checkpoint = folder.latest()  # `config.yaml` may have been edited or extended since then
    old = construct(RunConfig, read_yaml(folder.config_file) if checkpoint is None else checkpoint.config)
    other = changes(old.resolved(), config.resolved(), (*EXECUTION, *LENGTH))
    if other:
        raise ConfigError(
            f"resume must keep the run's config, but these keys differ: {', '.join(other)}; "
            f"only {', '.join(EXECUTION)}, rounds and budget may change"
        )
    path = horizon_of(config.algorithm)
    if path is not None and old.rounds != config.rounds:
        rule = f"must stay {old.rounds}, since {path} depends on it: the rounds so far would have been different"
        raise ConfigError(f"{rule}, but got {config.rounds}", "rounds")
    before, now = Limits.of(old).amounts, Limits.of(config).amounts
    if checkpoint is not None:
        require_more(checkpoint, Limits({name: amount for name, amount in now.items() if before.get(name) != amount}))


def known_records(folder: RunFolder, config: RunConfig) -> list[Record]:
    """The records in a folder; without the ending if the run must continue, or if no checkpoint proves the ending.

    The run must continue if it is to be longer, or if its result is missing, damaged or from another run.
    """
    records, checkpoint = folder.proven_records(), folder.latest()
    if "status" not in (records[-1] if records else {}):
        return records
    ended = checkpoint is not None and (
        records[-1]["status"] == "diverged" or Limits.of(config).ended_by(checkpoint.costs) is not None
    )
    if not ended or not folder.has_result():
        records[-1] = without_ending(records[-1])
    return records


def require_more(checkpoint: Checkpoint, limits: Limits) -> None:
    """Raise a ConfigError if the run has already reached one of the new limits."""
    name = limits.ended_by(checkpoint.costs)
    if name is not None:
        rule = f"must be more than what the run has already used, {used(checkpoint.costs)[name]:g}"
        raise ConfigError(f"{rule}, but got {limits.amounts[name]:g}", *(["budget"] if name != "rounds" else []), name)
