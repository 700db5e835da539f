"""An MLflow experiment: how it is found or made, and what all its runs have in common."""

from pathlib import Path
from typing import TYPE_CHECKING

from fedmbo_ray.core.io import own_folder
from fedmbo_ray.tracking.connection import FILE, make_client, require_writable_store, tracking_uri
from fedmbo_ray.tracking.metadata import Pages, surroundings, user

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun


class MlflowExperiment:
    """Every method may fail, and be called again."""

    def __init__(self, name: str, uri: str | None) -> None:
        self.name, self.uri = name, uri or tracking_uri()
        require_writable_store(self.uri)
        self._client: MlflowClient | None = None
        self.pages = Pages("")

    @property
    def client(self) -> "MlflowClient":
        return self._client or self.open()

    def open(self) -> "MlflowClient":
        """A client; if MLflow is a file that does not exist, its database is made."""
        self._client = make_client(self.uri)
        return self._client

    def connect(self) -> None:
        found = self.client.get_experiment_by_name(self.name)
        self.pages = Pages(found.experiment_id if found is not None else self._create())

    def _create(self) -> str:
        place = None
        if self.uri.startswith(FILE):
            own_folder(artifacts := Path("mlartifacts").absolute())
            place = artifacts.as_uri()
        kind = {"mlflow.experimentKind": "custom_model_development"}  # or the pages are those for language models
        return self.client.create_experiment(self.name, artifact_location=place, tags=kind)

    def runs(self, condition: str) -> "list[MlflowRun]":
        runs: list[MlflowRun] = []
        token = None
        while True:
            found = self.client.search_runs([self.pages.experiment_id], condition, max_results=1000, page_token=token)
            runs += list(found)
            token = found.token
            if not token:
                return runs

    def create(self, name: str, parent: str | None, tags: dict[str, str]) -> "MlflowRun":
        """A new run, below another if there is a parent."""
        everywhere = {"mlflow.source.type": "LOCAL", "mlflow.user": user(), **surroundings(), **tags}
        nested = {"mlflow.parentRunId": parent} if parent else {}
        return self.client.create_run(self.pages.experiment_id, tags=everywhere | nested, run_name=name)

    def log_params(self, run_id: str, params: dict[str, object]) -> None:
        from mlflow.entities import Param

        entries = [Param(key, str(value)[:6000]) for key, value in params.items()]
        for start in range(0, len(entries), 100):
            self.client.log_batch(run_id, params=entries[start : start + 100])
