"""load: the run, sweep or study in a folder, as an object."""

from pathlib import Path
from typing import TYPE_CHECKING

from fedmbo_ray.core.errors import ConfigError

if TYPE_CHECKING:
    from fedmbo_ray.api.run import Run
    from fedmbo_ray.api.study import Study
    from fedmbo_ray.api.sweep import Sweep

SIGNS = {  # files that only a folder of this kind holds
    "run": ("config.yaml", "records.jsonl"),
    "sweep": ("sweep.yaml",),
    "study": ("scale", "identity"),
    "trial": ("point.json",),
    "report": ("report.html",),
}
LOADED = ("run", "sweep", "study")


def load(folder: str | Path) -> "Run | Sweep | Study":
    """Load the run, sweep or study in a folder.

    Args:
        folder: the folder given as `out`, or the default one: `runs/<time>`, `sweeps/<name>-<time>`,
            `studies/<name>-<scale>-<time>`; or the folder of one seed of a trial.

    Returns:
        A `Run`, a `Sweep` or a `Study`; if it has not ended, what there is so far.

    Raises:
        ConfigError: if the folder holds none of these; the message says what it holds.

    Example:
        >>> from fedmbo_ray import load
        >>> load("runs/mnist").records  # doctest: +SKIP
    """
    path = require_kind(folder, *LOADED)
    kind = kind_of(path)
    if kind == "run":
        return opened(path)
    if kind == "sweep":
        from fedmbo_ray.api.sweep import Sweep

        return Sweep(path)
    from fedmbo_ray.api.study import Study

    return Study(path)


def opened(folder: Path) -> "Run":
    """The run in a folder, finished or not; `step` and `finish` continue from its newest checkpoint."""
    from fedmbo_ray.api.run import Run  # torch takes seconds to import
    from fedmbo_ray.config.schema import RunConfig
    from fedmbo_ray.core.components import construct
    from fedmbo_ray.core.io import read_yaml
    from fedmbo_ray.runs.folder import RunFolder

    run, found = Run.__new__(Run), RunFolder(folder)
    config: RunConfig = construct(RunConfig, read_yaml(found.config_file))
    run._begin(config, found, resume=True, progress=None, task=None)
    run._records = found.proven_records()
    return run


def require_kind(folder: str | Path, *wanted: str) -> Path:
    """The path of a folder that holds what is wanted; raises a ConfigError that says what it holds instead."""
    path = Path(folder).expanduser()
    kind = kind_of(path)
    if kind in wanted:
        return path
    if kind in LOADED:
        raise ConfigError(f"a {wanted[0]} was expected, but {path} holds a {kind}: open it with load")
    what = "a run, a sweep or a study" if wanted == LOADED else f"a {wanted[0]}"
    raise ConfigError(f"this needs the folder of {what}, but {path} {instead(path, kind)}")


def kind_of(path: Path) -> str | None:
    """What a folder holds; None if unknown."""
    return next((kind for kind, files in SIGNS.items() if all((path / file).is_file() for file in files)), None)


def instead(path: Path, kind: str | None) -> str:
    """Why a path can't be loaded, and what to load instead."""
    if not path.exists():
        return "does not exist"
    if not path.is_dir():
        return f"is a file; perhaps you mean {path.parent}" if kind_of(path.parent) in LOADED else "is a file"
    if kind == "trial":
        return f"is a trial of the sweep {path.parent.parent}: load that, or one of its runs, {path / 'seed_000'}"
    if kind == "report":
        return "is a report: open report.html in a browser"
    if kind_of(path.parent) in LOADED:
        return f"is a part of the {kind_of(path.parent)} in {path.parent}: load that"
    inside = [each for each in sorted(path.iterdir()) if each.is_dir() and kind_of(each) in LOADED]
    if inside:
        return f"holds {counted(inside)}: load one of them, such as {inside[-1]}"
    if (path / "config.yaml").is_file():
        return "has a config.yaml but no records: its run has not reached its first record"
    found = sorted(each.name for each in path.iterdir())
    return f"holds none of them: {', '.join(found[:5])}{', …' if len(found) > 5 else ''}" if found else "is empty"


def counted(folders: list[Path]) -> str:
    """How many folders there are of each kind: "2 runs and 1 sweep"."""
    kinds = [kind_of(each) or "" for each in folders]
    plural = {"study": "studies"}
    numbers = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return " and ".join(f"{n} {kind if n == 1 else plural.get(kind, f'{kind}s')}" for kind, n in numbers.items())
