"""Turns the arguments of a call into a checked config."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedmbo_ray.config.overrides import DEFAULT, Override, changed, plain
from fedmbo_ray.config.schema import Fields, RunConfig
from fedmbo_ray.config.shipped import find_config, is_override
from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError, quoted
from fedmbo_ray.core.io import read_yaml
from fedmbo_ray.core.timed_folders import require_writable
from fedmbo_ray.problems.base import Task
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.continuation import require_continuable
from fedmbo_ray.runs.folder import RunFolder

ConfigLike = RunConfig | Mapping[str, object] | str | Path | None


def prepared(
    config: ConfigLike,
    overrides: Sequence[str],
    changes: Mapping[str, object],
    folder: RunFolder | None,
    resume: bool,
) -> tuple[RunConfig, Task]:
    """The config and the task of a run; makes its folder. Raises ConfigError before anything is started."""
    found = config_of(config, overrides, changes, folder, resume)
    task = build_task(found)
    if folder is not None:
        require_writable(folder.path)
    return found, task


def config_of(
    config: ConfigLike,
    overrides: Sequence[str],
    changes: Mapping[str, object],
    folder: RunFolder | None,
    resume: bool,
) -> RunConfig:
    """The config of a run that starts or continues in a folder."""
    if isinstance(config, str) and is_override(config):
        overrides, config = [config, *overrides], None
    if resume and folder is None:
        raise ConfigError("resume needs out, the folder of the run to continue")
    if resume and folder is not None and not folder.config_file.exists():
        raise ConfigError(f"resume needs a folder with a run, but {folder.path} has no config.yaml")
    if not resume and folder is not None and folder.has_run():
        raise ConfigError(f"{folder.path} already holds a run; continue it (resume) or choose another folder (out)")
    words: list[Override] = [*overrides, *((key.split("."), value) for key, value in changes.items())]
    default = folder.config_file if resume and folder is not None else DEFAULT
    made = made_of(config, words, default)
    if resume and folder is not None:
        require_continuable(folder, made)
    return made


def made_of(config: ConfigLike, words: Sequence[Override], default: Path) -> RunConfig:
    """The config with changes applied."""
    if isinstance(config, RunConfig) and not words:
        return config
    return construct(RunConfig, changed(run_fields(config, default), words))


def run_fields(config: ConfigLike, default: Path) -> Fields:
    if isinstance(config, RunConfig):
        return config.resolved()
    if isinstance(config, Mapping):
        return {str(key): plain(value) for key, value in config.items()}
    if isinstance(config, str | Path | None):
        fields = read_yaml(default if config is None else find_config(config))
        if "tune" in fields:
            raise ConfigError(f"{config} is a sweep: run it with `fedmbo tune`, or with run_sweep in Python")
        return fields
    raise ConfigError(f"a config must be a RunConfig, a mapping, a path or None, but got {quoted(config)}")
