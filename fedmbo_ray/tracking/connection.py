"""Where MLflow is, and how it is talked to."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.process_state import environment_with, log_levels_kept
from fedmbo_ray.core.timed_folders import require_writable

if TYPE_CHECKING:
    from mlflow import MlflowClient

ENVIRONMENT = {  # fail soon if a server can't be reached; we try again ourselves
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
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
    """A client of MLflow's; a database that is a file is made for its owner alone."""
    from mlflow import MlflowClient

    if uri.startswith(FILE) and "?" not in uri:
        with suppress(OSError):  # MLflow says what is wrong with it
            os.close(os.open(uri.removeprefix(FILE), os.O_CREAT, 0o600))
    return MlflowClient(uri)
