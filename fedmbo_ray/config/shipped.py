"""The configs and sweeps that come with the package, by name."""

import difflib
from itertools import takewhile
from pathlib import Path

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.io import SHIPPED, read_yaml


def shipped_configs() -> dict[str, Path]:
    """Every shipped file by its name, which is its path without `tune_configs/` and `.yaml`."""
    files = sorted(SHIPPED.rglob("*.yaml"), key=lambda file: (len(file.parts), file))
    return {file.relative_to(SHIPPED).with_suffix("").as_posix(): file for file in files}


def find_config(word: str) -> Path:
    """The file that a word means: one that exists, or a shipped one (`mnist`, `tune_configs/mnist.yaml`).

    Raises:
        ConfigError: where there is neither.
    """
    path, known = Path(word), shipped_configs()
    name = word.removeprefix("./").removeprefix("tune_configs/").removesuffix(".yaml")
    if path.is_file() or (path.exists() and name not in known):
        return path
    if name not in known:
        near = difflib.get_close_matches(name, known)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise ConfigError(
            f"can't read {word}: No such file or directory, and no shipped config has this name; "
            f"{hint}all of them: fedmbo catalog configs sweeps"
        )
    return known[name]


def comment(file: Path) -> str:
    """What the lines at the top of a config say about it."""
    lines = takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    return " ".join(line.removeprefix("#").strip() for line in lines)


def is_sweep(file: Path) -> bool:
    return "tune" in read_yaml(file)
