"""Where MLflow is, and how it is talked to."""

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

ENVIRONMENT = {  # fail at once if a server can't be reached; we try again ourselves
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # a request whose answer was lost may have made a run: it is found again
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
FILE = "sqlite:///"
TALKATIVE = ("mlflow", "alembic")  # databases made, experiments created


def tracking_uri() -> str:
    """Where MLflow is, where nothing else is said."""
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
    """Within it, MLflow gives up soon and says little; what is changed for that is put back at the end."""
    with environment_with({key: value for key, value in ENVIRONMENT.items() if key not in os.environ}):
        import mlflow  # noqa: F401 (it takes seconds, and sets the levels that are to be put back)

        with log_levels_kept(*TALKATIVE):
            for name in TALKATIVE:
                logging.getLogger(name).setLevel(logging.ERROR)
            yield


def make_client(uri: str) -> "MlflowClient":
    """A client of MLflow's."""
    from mlflow import MlflowClient

    if uri.startswith(FILE) and "?" not in uri:
        with suppress(OSError):  # MLflow says what is wrong with it
            make_store(Path(uri.removeprefix(FILE)))
    return MlflowClient(uri)


def make_store(file: Path) -> None:
    """Make MLflow's database for its owner alone, unless there is one."""
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
    """Make a database in which MLflow has nothing yet.

    MLflow makes its tables in a hundred steps, each of which waits for the disk; killed among them, it leaves a
    database that nothing can open again. So they are made in memory, where a name that is used once keeps them apart.
    """
    from mlflow import MlflowClient

    memory = f"file:{file.parent.name}?mode=memory&cache=shared"
    with closing(sqlite3.connect(memory, uri=True)) as tables, closing(sqlite3.connect(file)) as copy:
        MlflowClient(f"{FILE}{memory}&uri=true").search_experiments()
        tables.backup(copy)
