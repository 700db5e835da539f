"""Where a sweep is kept, and which sweep may continue there."""

from collections.abc import Sequence
from pathlib import Path

from fedmbo_ray.config.overrides import Override, changed, changes
from fedmbo_ray.config.schema import EXECUTION, Fields
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.timed_folders import new_timed, newest_timed
from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.scales import STANDARD
from fedmbo_ray.sweeps.schema import SweepFields, SweepPlan, make_sweep, scaled

FREE = ("concurrency", "time_budget", "retries", "cpus_per_trial", "resources", "tracking_uri")  # they change no result


def new_folder(name: str) -> SweepFolder:
    """A folder in `sweeps` for a sweep that begins now."""
    return SweepFolder(new_timed(Path("sweeps"), name))


def newest_folder(name: str) -> SweepFolder:
    """The folder in `sweeps` of the last sweep of this name; raises ConfigError if there is none."""
    found = newest_timed(Path("sweeps"), name, "sweep.yaml")
    if found is None:
        raise ConfigError(f"resume found no sweep of {name!r} in the folder sweeps; name its folder (out)")
    return SweepFolder(found)


def continued(
    folder: SweepFolder, given: Fields | None, overrides: Sequence[Override], scale: str = STANDARD
) -> SweepPlan:
    """The sweep to continue: the given one or the folder's, changed only in keys that do not affect results."""
    if not folder.has_sweep():
        raise ConfigError(f"resume needs a folder with a sweep, but {folder.path} has no sweep.yaml")
    fields = scaled(dict(given) if given is not None else folder.fields(), scale)
    return continued_with(folder, make_sweep(changed(fields, list(overrides), SweepFields)))


def continued_with(folder: SweepFolder, new: SweepPlan) -> SweepPlan:
    """The new sweep, if it may continue the sweep in the folder."""
    old = make_sweep(folder.fields())
    other = changes(old.plain(), new.plain(), (*EXECUTION, *(f"tune.{key}" for key in FREE)))
    if other:
        raise ConfigError(f"resume must keep the sweep, but these keys differ: {', '.join(other)}")
    return new
