"""The configs and sweeps that come with the package, by name."""

from itertools import takewhile
from pathlib import Path

from fedmbo_ray.core.errors import ConfigError, nearest
from fedmbo_ray.core.io import SHIPPED, read_yaml


def shipped_configs() -> dict[str, Path]:
    """Every shipped file by its name, which is its path without `tune_configs/` and `.yaml`."""
    files = sorted(SHIPPED.rglob("*.yaml"), key=lambda file: (len(file.parts), file))
    return {file.relative_to(SHIPPED).with_suffix("").as_posix(): file for file in files}


def find_config(word: str | Path) -> Path:
    """The file that a word means: one that exists, or a shipped one (`mnist`, `tune_configs/mnist.yaml`).

    A Path, or another name that ends in .yaml, always means a file of the user's.

    Raises:
        ConfigError: where there is neither.
    """
    path, known, given = Path(word).expanduser(), shipped_configs(), str(word)
    inside = given.removeprefix("./").removeprefix("tune_configs/")
    name = inside.removesuffix(".yaml")
    bare = given.removeprefix("./") != inside or name == given
    if name in known and bare and isinstance(word, str) and not path.is_file():
        return known[name]
    if not path.exists():
        raise ConfigError(
            f"can't read {word}: No such file or directory; {nearest(name, list(known))}"
            "all shipped configs: fedmbo catalog configs sweeps"
        )
    return path


def is_override(word: str | Path) -> bool:
    """Whether a word is a `key.path=value`, and not the name of a file that has a `=` in it."""
    if not isinstance(word, str) or "=" not in word:
        return False
    try:
        return not Path(word).expanduser().is_file()
    except OSError:  # too long for a name
        return True


def comment(file: Path) -> str:
    """What the lines at the top of a config say about it."""
    lines = takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    return " ".join(line.removeprefix("#").strip() for line in lines)


def is_sweep(file: Path) -> bool:
    return "tune" in read_yaml(file)
