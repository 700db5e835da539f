"""Checks whether the run in a folder may continue with a config: unchanged, or longer."""

from fedmbo_ray.config.overrides import changes
from fedmbo_ray.config.schema import EXECUTION, LENGTH, RunConfig, horizon_of
from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.io import read_yaml
from fedmbo_ray.runs.arrays import read_npz
from fedmbo_ray.runs.checkpoint import Record, without_ending
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.limits import Limits, used


def require_continuable(folder: RunFolder, config: RunConfig) -> None:
    """Raise a ConfigError unless the continued run gives the same result as a new run with `config`."""
    old = construct(RunConfig, read_yaml(folder.config_file))
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
    require_more(folder, Limits({name: amount for name, amount in now.items() if before.get(name) != amount}))


def known_records(folder: RunFolder, config: RunConfig) -> list[Record]:
    """The records in a folder; without their ending if there is more to do: a longer run, or a damaged result."""
    records = folder.proven_records()
    if "status" not in (records[-1] if records else {}):
        return records
    checkpoint = folder.latest() if records[-1]["status"] == "finished" else None
    longer = checkpoint is not None and Limits.of(config).ended_by(checkpoint.costs) is None
    if longer or not folder.result_file.exists() or read_npz(folder.result_file) is None:
        records[-1] = without_ending(records[-1])
    return records


def require_more(folder: RunFolder, limits: Limits) -> None:
    """Raise a ConfigError if the run has already reached one of the new limits."""
    checkpoint = folder.latest() if limits.amounts else None
    name = None if checkpoint is None else limits.ended_by(checkpoint.costs)
    if checkpoint is not None and name is not None:
        rule = f"must be more than what the run has already used, {used(checkpoint.costs)[name]:g}"
        raise ConfigError(f"{rule}, but got {limits.amounts[name]:g}", *(["budget"] if name != "rounds" else []), name)
