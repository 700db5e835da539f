"""fedmbo: every command of the package by its name. `python -m fedmbo_ray` is the same."""

import sys
from importlib import import_module
from pathlib import Path

from fedmbo_ray import __version__
from fedmbo_ray.cli.command import complain
from fedmbo_ray.core.errors import ConfigError, choices

COMMANDS = {
    "run": "run one config, with records and checkpoints",
    "tune": "run a sweep of configs on Ray Tune, recorded in MLflow",
    "study": "run the sweeps that answer a question, and judge the results",
    "report": "put all studies in MLflow on one page",
    "plot": "plot the records of runs",
    "catalog": "list methods, their parts, problems, partitions and shipped configs",
    "data": "list data sets, download them, show how a config distributes them over clients",
    "new": "write a package for methods of your own",
    "ui": "serve MLflow's page for the sweeps and studies of this folder",
    "cluster": "check the machines of a cluster.yaml",
}
HELP = f"""usage: fedmbo COMMAND ...

Federated bilevel optimization on Ray.

commands:
{chr(10).join(f"  {name:9} {what}" for name, what in COMMANDS.items())}

options:
  --help     show this help, or the help of a command
  --version  show the version

Examples:
  fedmbo run rounds=100 algorithm.hypergradient=phe_sum
  fedmbo tune mnist_steps --dry-run
  fedmbo catalog fednest
"""


def main(words: list[str] | None = None) -> int:
    command, *rest = (sys.argv[1:] if words is None else words) or ["--help"]
    if command in ("-h", "--help"):
        print(HELP, end="")
        return 0
    if command == "--version":
        print(f"fedmbo_ray {__version__}")
        return 0
    if command not in COMMANDS:
        known = list(COMMANDS) if not command.startswith("-") else ["--help", "--version"]
        return complain(ConfigError(f"unknown command {command!r}; {choices(command, known)}"), 2)
    if words is None:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` has it: modules of this folder can be named in a config
    code: int = import_module(f"fedmbo_ray.cli.{command}").main(rest)
    return code
