"""What the commands share: how they read arguments, report errors and handle interruptions."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TextIO

from fedmbo_ray.config.shipped import find_config, is_override
from fedmbo_ray.core.errors import ConfigError, DownloadError, FolderDamaged, FolderInUse, RunFailed, RunStopped
from fedmbo_ray.core.interruptions import Interruptions, interruptible, may_leave
from fedmbo_ray.core.memory import is_shortage, out_of_memory
from fedmbo_ray.core.process_state import own_stderr


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are ConfigErrors, and whose help keeps its line breaks."""

    def __init__(self, module: str, description: str, epilog: str) -> None:
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=called(module), description=description, epilog=epilog, formatter_class=raw)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see --help)")

    def parse_config(self, words: list[str]) -> argparse.Namespace:
        """Parse, and add `file` (the config file, or None) and `overrides` (the key.path=value words)."""
        args = self.parse_intermixed_args(words)
        args.overrides = [word for word in args.config if is_override(word)]
        files = [word for word in args.config if not is_override(word)]
        if len(files) > 1:
            self.error(f"one config file at most, but got {', '.join(files)}")
        args.file = find_config(files[0]) if files else None
        return args


def place(word: str) -> Path:
    """The path that a word means; a shell leaves the ~ in `--out=~/run` as it is."""
    return Path(word).expanduser()


def called(module: str) -> str:
    """How the user called the command of a module such as fedmbo_ray.run: with `fedmbo`, or with `python -m`."""
    command = module.removeprefix("fedmbo_ray.")
    program = Path(sys.argv[0]).name
    if program == f"{command}.py":
        return f"python -m {module}"
    return f"python -m fedmbo_ray {command}" if program == "__main__.py" else f"fedmbo {command}"


def complain(error: BaseException, code: int, hint: str = "") -> int:
    """Print an error as one line on stderr; returns the exit code."""
    print(f"error: {str(error) or type(error).__name__}{hint}", file=sys.stderr)
    return code


def guarded(work: Callable[[], int], hint: Callable[[], str]) -> int:
    """Run `work` and return its exit code, also after errors; `hint` says how to continue an interrupted command."""
    interruptions = Interruptions()
    with own_stderr(), may_leave(hint), interruptible(interruptions):
        return _answered(work, hint, interruptions)


def _answered(work: Callable[[], int], hint: Callable[[], str], interruptions: Interruptions) -> int:
    try:
        return work()
    except (ConfigError, DownloadError) as error:
        return complain(error, 2)
    except (RunStopped, OSError) as error:
        return complain(error, 1, hint())
    except (FolderInUse, FolderDamaged, RunFailed) as error:
        return complain(error, 1)
    except (MemoryError, RuntimeError, ImportError) as error:
        if not is_shortage(error):
            raise
        return complain(RunStopped(out_of_memory(error)), 1, hint())
    except KeyboardInterrupt:
        print(f"interrupted{hint()}", file=sys.stderr)
        return 128 + interruptions.number


@contextmanager
def result_alone() -> Iterator[TextIO]:
    """In this context, `print` writes to stderr; yields stdout, which is only for the command's result."""
    stdout, sys.stdout = sys.stdout, sys.stderr
    try:
        yield stdout
    finally:
        sys.stdout = stdout
