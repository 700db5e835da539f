"""fedmbo new: a package for methods, problems and partitions of your own, made from the templates."""

import keyword
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from fedmbo_ray.cli.command import Parser, guarded
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.interruptions import at_stake

TEMPLATE = Path(__file__).parent / "template"
PLACEHOLDER = "my_methods"  # the package's name in the template

HELP = """
The package has one file for each kind of component, a test that checks the contract, and a README. In configs, its
components are called NAME_..., so that two such packages don't collide; the names are in its pyproject.toml.

Example:
  fedmbo new my_methods
"""


def check_new(name: str, folder: Path) -> None:
    """Raise a ConfigError unless a package of this name can be made there."""
    if not re.fullmatch(r"[A-Za-z](\w*[A-Za-z0-9])?", name, re.ASCII) or keyword.iskeyword(name):
        raise ConfigError(f"NAME must be a Python name that begins with a letter and ends without _, but got {name!r}")
    if folder.exists():
        raise ConfigError(f"NAME must be the name of a new folder, but {folder} exists")
    if name in sys.stdlib_module_names or find_spec(name) is not None:
        raise ConfigError(f"NAME must be new, but Python already has a module {name!r} here; choose another")


@at_stake()
def write(name: str, folder: Path) -> None:
    """Copy the template under another name; the folder appears complete or not at all."""
    with TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
        made = Path(scratch) / name
        for file in sorted(TEMPLATE.rglob("*")):
            if file.is_dir() or "__pycache__" in file.parts:
                continue
            target = made / str(file.relative_to(TEMPLATE)).replace(PLACEHOLDER, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(file.read_text(encoding="utf-8").replace(PLACEHOLDER, name), encoding="utf-8")
        made.rename(folder)


def main(words: list[str] | None = None) -> int:
    parser = Parser("fedmbo_ray.new", "Write a package for methods of your own.", HELP)
    parser.add_argument("name", metavar="NAME", help="the name of the package and of its new folder")

    def work() -> int:
        name = parser.parse_args(words).name
        folder = Path(name)
        check_new(name, folder)
        write(name, folder)
        print(f"wrote the package {name}; next:")
        print(f"  pip install --editable './{name}[test]'")
        print(f"  python -m pytest {name}")
        print(f"  fedmbo run algorithm={name}_local_soba rounds=50")
        return 0

    return guarded(work, lambda: "")
