"""An experiment of MLflow's: how it is found or made, and what all its runs have in common."""

from pathlib import Path
from typing import Any

from fedmbo_ray.tracking.connection import make_client, prepare, tracking_uri
from fedmbo_ray.tracking.describing import Pages, surroundings, user


class Experiment:
    """Every method may fail, and be called again."""

    def __init__(self, name: str, uri: str | None) -> None:
        prepare()
        self.name, self.uri = name, uri or tracking_uri()
        self.client: Any = None
        self.pages = Pages("")

    def connect(self) -> None:
        self.client = self.client or make_client(self.uri)
        found = self.client.get_experiment_by_name(self.name)
        self.pages = Pages(found.experiment_id if found is not None else self._create())

    def _create(self) -> str:
        place = Path("mlartifacts").absolute().as_uri() if self.uri.startswith("sqlite:") else None
        kind = {"mlflow.experimentKind": "custom_model_development"}  # or the pages are those for language models
        return self.client.create_experiment(self.name, artifact_location=place, tags=kind)

    def runs(self, condition: str) -> list[Any]:
        runs, token = [], None
        while True:
            found = self.client.search_runs([self.pages.experiment_id], condition, max_results=1000, page_token=token)
            runs += list(found)
            token = found.token
            if not token:
                return runs

    def create(self, name: str, parent: str | None, tags: dict[str, str]) -> Any:
        """A new run, below another if there is a parent."""
        everywhere = {"mlflow.source.type": "LOCAL", "mlflow.user": user(), **surroundings(), **tags}
        nested = {"mlflow.parentRunId": parent} if parent else {}
        return self.client.create_run(self.pages.experiment_id, tags=everywhere | nested, run_name=name)

    def log_params(self, run_id: str, params: dict[str, Any]) -> None:
        from mlflow.entities import Param

        entries = [Param(key, str(value)[:6000]) for key, value in params.items()]
        for start in range(0, len(entries), 100):
            self.client.log_batch(run_id, params=entries[start : start + 100])
