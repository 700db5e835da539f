"""Where MLflow is, and how it is talked to."""

import logging
import os
from pathlib import Path
from typing import Any

ENVIRONMENT = {  # a server that is away is to be found out soon; we try again ourselves
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}


def tracking_uri() -> str:
    """Where MLflow is, where nothing else is said."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path('mlflow.db').absolute()}"


def prepare() -> None:
    """Before MLflow is imported."""
    os.environ.update({key: value for key, value in ENVIRONMENT.items() if key not in os.environ})


def make_client(uri: str) -> Any:
    prepare()
    from mlflow import MlflowClient  # takes seconds to import

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)  # databases made, experiments created
    return MlflowClient(uri)
