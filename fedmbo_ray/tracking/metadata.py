"""What MLflow records of a run besides its figures: parameters, data, environment, and descriptions with links."""

import contextlib
import getpass
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from fedmbo_ray import __version__
from fedmbo_ray.config.schema import DataConfig, Fields, RunConfig
from fedmbo_ray.core.markup import code_markdown, plain_markdown
from fedmbo_ray.data.dataset import Dataset
from fedmbo_ray.sweeps.ranking import Standing
from fedmbo_ray.sweeps.space import SweepPoint
from fedmbo_ray.tracking.client_picture import PICTURE

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

PACKAGES = ("ray", "torch", "torchvision", "mlflow", "numpy")


def parameters(config: RunConfig, point: SweepPoint) -> dict[str, object]:
    """Key paths and values; what the point chooses stands as it was chosen."""
    values = {path: value for path, value in point.items() if not isinstance(value, dict)}
    return {key: value for key, value in flat(config.resolved()).items() if not _within(key, values)} | values


def _within(key: str, paths: Iterable[str]) -> bool:
    return any(key == path or key.startswith(f"{path}.") for path in paths)


def flat(fields: Fields, path: str = "") -> dict[str, object]:
    """Key paths and values."""
    found: dict[str, object] = {}
    for key, value in fields.items():
        here = f"{path}{key}"
        found |= flat(value, f"{here}.") if isinstance(value, dict) else {here: value}
    return found


def data_set(config: DataConfig, data: Dataset) -> "DatasetInput":
    """A run's data set, as MLflow has it."""
    from mlflow.entities import Dataset as MlflowDataset  # MLflow takes seconds to import
    from mlflow.entities import DatasetInput, InputTag

    profile = {"train": len(data.train_targets), "test": len(data.test_targets), "classes": data.num_classes}
    source = json.dumps({"name": config.name, "path": None if config.path is None else str(config.path)})
    entity = MlflowDataset(config.name, data.digest[:32], "local", source, profile=json.dumps(profile))
    return DatasetInput(entity, [InputTag("mlflow.data.context", "training")])


@cache
def surroundings() -> dict[str, str]:
    """Where and with what a run was made."""
    found = {f"version.{name}": version(name) for name in PACKAGES}
    found |= {"version.fedmbo_ray": __version__, "version.python": platform.python_version()}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        here = Path(__file__).parent
        said = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        found["mlflow.source.git.commit"] = said.stdout.strip()
    return found | {"host": platform.node(), "machine": machine()}


def machine() -> str:
    """What kind it is, without its name."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
        return f"{os.cpu_count()} cores of {model or platform.machine()}"
    return f"{os.cpu_count()} cores of {platform.processor() or platform.machine()}"


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "unknown"


class Pages:
    """Addresses of an experiment's pages, behind that of the user interface."""

    def __init__(self, experiment_id: str) -> None:
        self.experiment_id = experiment_id

    def run(self, run_id: str) -> str:
        return f"#/experiments/{self.experiment_id}/runs/{run_id}"

    def artifact(self, run_id: str, name: str) -> str:
        return f"{self.run(run_id)}/artifacts/{name}"

    def curves(self, run_ids: list[str], metric: str) -> str:
        """A metric of several runs against their rounds."""
        keys = f"metric={_quoted(metric)}&plot_metric_keys={_quoted([metric])}&plot_layout=%7B%7D"
        return f"#/metric?{self._several(run_ids)}&{keys}&x_axis=step&y_axis_scale=log"

    def comparison(self, run_ids: list[str]) -> str:
        return f"#/compare-runs?{self._several(run_ids)}"

    def _several(self, run_ids: list[str]) -> str:
        return f"runs={_quoted(run_ids)}&experiments={_quoted([self.experiment_id])}"


def _quoted(value: object) -> str:
    return quote(json.dumps(value))


def run_note(pages: Pages, run_id: str, label: str, pictured: bool) -> str:
    """What a run is, in Markdown, and where its config is."""
    config = f"[config]({pages.artifact(run_id, 'config.yaml')})"
    note = f"{label}\n\nIts {config} is what `fedmbo run config.yaml` repeats."
    return f"{note} {clients_link(pages, run_id)}." if pictured else note


def clients_link(pages: Pages, run_id: str) -> str:
    return f"[What data each client has]({pages.artifact(run_id, PICTURE)})"


def sweep_note(
    pages: Pages, run_ids: dict[str, str], trials: list[Standing], metric: str, command: str, pictured: bool
) -> str:
    """Its best trial, where to look, the command; `run_ids` are those of the trials, and of the sweep under ""."""
    shown, title = [run_ids[each.name] for each in trials[:20]], plain_markdown(metric)
    links = [f"[{title} against rounds]({pages.curves(shown, metric)})", f"[comparison]({pages.comparison(shown)})"]
    parts = [
        ", ".join([*links, clients_link(pages, run_ids[""])] if pictured else links),
        ranking_rows(trials[:5], metric),
        code_markdown(command),
    ]
    if trials and trials[0].score is not None:
        best, config = trials[0], f"[its config]({pages.artifact(run_ids[''], 'best.yaml')})"
        page = f"[{plain_markdown(best.label)}]({pages.run(run_ids[best.name])})"
        parts.insert(0, f"Best of {len(trials)} trials: {page} with {title} {best.score:.5g}, {config}.")
    return "\n\n".join(parts)


def ranking_rows(trials: list[Standing], metric: str) -> str:
    """A table in Markdown."""
    cells = [(each.name, each.label, each.score, each.round, each.status) for each in trials]
    rows = [f"| {' | '.join(map(plain_markdown, row))} |" for row in cells]
    return "\n".join([f"| trial | point | {plain_markdown(metric)} | round | status |", "|---|---|---|---|---|", *rows])
