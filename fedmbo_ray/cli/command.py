"""What the commands have in common: how they read their words, how they complain and how they are interrupted."""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from fedmbo_ray.checkpoints import FolderDamaged, FolderInUse
from fedmbo_ray.downloads import DownloadError
from fedmbo_ray.federation import RunFailed
from fedmbo_ray.registry import ConfigError

SCALES = ("smoke", "standard", "paper")  # of studies


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are ConfigErrors, and whose help keeps its line breaks."""

    def __init__(self, module: str, description: str, epilog: str) -> None:
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=f"python -m {module}", description=description, epilog=epilog, formatter_class=raw)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see --help)")

    def parse_config(self, words: list[str]) -> argparse.Namespace:
        """Also `file` (None if there is none) and `overrides`: what there is of CONFIG.yaml and key.path=value."""
        args = self.parse_intermixed_args(words)
        args.overrides = [word for word in args.config if "=" in word]
        files = [word for word in args.config if "=" not in word]
        if len(files) > 1:
            self.error(f"one config file at most, but got {', '.join(files)}")
        args.file = Path(files[0]) if files else None
        return args


def complain(error: BaseException, code: int) -> int:
    """One line about an error on stderr; returns the exit code."""
    said = " ".join(str(error).split()) if isinstance(error, ConfigError) else str(error)
    print(f"error: {said or type(error).__name__}", file=sys.stderr)
    return code


def guarded(work: Callable[[], int], hint: Callable[[], str]) -> int:
    """The exit code of a command's work, whatever becomes of it; `hint` tells how to go on after an interruption."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return work()
    except (ConfigError, DownloadError) as error:
        return complain(error, 2)
    except (FolderInUse, FolderDamaged, RunFailed, OSError, MemoryError) as error:
        return complain(error, 1)
    except KeyboardInterrupt:
        print(f"interrupted{hint()}", file=sys.stderr)
        return 130


def _interrupt(number: int, frame: Any) -> NoReturn:
    raise KeyboardInterrupt
