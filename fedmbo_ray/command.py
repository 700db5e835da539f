"""What the commands have in common: how they read their words and how they complain."""

import argparse
import sys
from typing import NoReturn

from fedmbo_ray.registry import ConfigError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are ConfigErrors, and whose help keeps its line breaks."""

    def __init__(self, module: str, description: str, epilog: str) -> None:
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=f"python -m {module}", description=description, epilog=epilog, formatter_class=raw)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see --help)")


def complain(error: BaseException, code: int) -> int:
    """One line about an error on stderr; returns the exit code."""
    said = " ".join(str(error).split()) if isinstance(error, ConfigError) else str(error)
    print(f"error: {said or type(error).__name__}", file=sys.stderr)
    return code
