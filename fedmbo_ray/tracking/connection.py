"""Where MLflow is, and how this package connects to it."""

import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.io import one_at_a_time, write_atomically
from fedmbo_ray.core.process_state import environment_with, log_levels_kept
from fedmbo_ray.core.scratch import scratch_folder
from fedmbo_ray.core.timed_folders import require_writable

if TYPE_CHECKING:
    from mlflow import MlflowClient

ENVIRONMENT = {  # fail at once if a server can't be reached; this package retries itself
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # a repeated request could make a run twice, if only its answer was lost
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
FILE = "sqlite:///"
TALKATIVE = ("mlflow", "alembic")  # databases made, experiments created


def tracking_uri() -> str:
    """The address of MLflow, if none is given."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path('mlflow.db').absolute()}"


def require_file(uri: str) -> None:
    """Raise a ConfigError for a file that isn't there, which MLflow would make."""
    if uri.startswith(FILE) and not Path(uri.removeprefix(FILE)).exists():
        raise ConfigError(f"no MLflow at {uri}; run a study (fedmbo study), or set $MLFLOW_TRACKING_URI")


def require_writable_store(uri: str) -> None:
    """Raise a ConfigError if MLflow is a file that can't be written to; its artifacts are in the working folder."""
    if not uri.startswith(FILE):
        return
    file = Path(uri.removeprefix(FILE))
    require_writable(file.parent, "the place of MLflow's database")
    require_writable(Path.cwd(), "the place of MLflow's artifacts")
    if file.exists():
        try:
            file.open("ab").close()
        except OSError as error:
            raise ConfigError(f"MLflow's database must be a file to write to, but {file}: {error.strerror}") from None


@contextmanager
def mlflow_at_hand() -> Iterator[None]:
    """In this context, MLflow gives up soon and prints little; the settings for this are undone at the end."""
    with environment_with({key: value for key, value in ENVIRONMENT.items() if key not in os.environ}):
        import mlflow  # noqa: F401 (it takes seconds, and sets the levels that are to be put back)

        with log_levels_kept(*TALKATIVE):
            for name in TALKATIVE:
                logging.getLogger(name).setLevel(logging.ERROR)
            yield


def make_client(uri: str) -> "MlflowClient":
    """An MLflow client; if MLflow is a file that does not exist, its database is made."""
    from mlflow import MlflowClient

    if uri.startswith(FILE) and "?" not in uri:
        with suppress(OSError):  # MLflow says what is wrong with it
            make_store(Path(uri.removeprefix(FILE)))
    return MlflowClient(uri)


def make_store(file: Path) -> None:
    """Make MLflow's database, which only its owner can open, if there is none."""
    with one_at_a_time(file.parent):
        if file.exists() and file.stat().st_size > 0:
            return
        folder = scratch_folder()
        try:
            make_empty_store(folder / file.name)
            write_atomically(file, (folder / file.name).read_bytes(), mode=0o600)
        finally:
            shutil.rmtree(folder)


def make_empty_store(file: Path) -> None:
    """Make an empty database of MLflow's.

    MLflow makes its tables in a hundred steps, each of which waits for the disk. If it is killed between them, nothing
    can open the database again. So the tables are made in memory and copied; each database has its own name there.
    """
    from mlflow import MlflowClient

    memory = f"file:{file.parent.name}?mode=memory&cache=shared"
    with closing(sqlite3.connect(memory, uri=True)) as tables, closing(sqlite3.connect(file)) as copy:
        MlflowClient(f"{FILE}{memory}&uri=true").search_experiments()
        tables.backup(copy)
