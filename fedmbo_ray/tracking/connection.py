"""Where MLflow is, and how it is talked to."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.process_state import environment_with, log_levels_kept

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
    from mlflow import MlflowClient

    return MlflowClient(uri)
