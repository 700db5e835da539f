"""What a run has learned, as a torch module that can be kept, loaded and served without this package."""

import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.data.array_clients import ArrayClients, Scaling
from fedmbo_ray.problems.base import Task, is_modelled
from fedmbo_ray.runs.folder import RunFolder

if TYPE_CHECKING:
    from mlflow import MlflowClient

Example = NDArray[np.float32] | NDArray[np.int64]


class Standardize(nn.Module):
    """Inputs as the data set has them (pixels from 0 to 255, say) to the numbers that clients see."""

    mean: Tensor
    scale: Tensor

    def __init__(self, scaling: Scaling) -> None:
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(scaling.mean, dtype=torch.float32))
        self.register_buffer("scale", torch.as_tensor(1 / scaling.std, dtype=torch.float32))

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs - self.mean) * self.scale


def model_of(task: Task, folder: RunFolder) -> tuple[nn.Module, Example] | None:
    """The classifier of pixels that a run has come to, and an example of what it takes; None if there is none."""
    found = folder.result()
    if found is None or found["y"].dim() == 2:  # no single model: every client has one
        return None
    module = classifier(task, found["x"], found["y"])
    if module is None or task.test is None:
        return None
    kind = np.float32 if task.test.inputs.is_floating_point() else np.int64
    return module, np.zeros((2, *task.test.inputs.shape[1:]), dtype=kind)


def model_for(task: Task, x: Tensor, y: Tensor, client: int | None) -> nn.Module:
    """The classifier of a client, or the one of all; raises a ConfigError if there is none."""
    module = classifier(task, x, y_of(y, client))
    if module is None:
        raise ConfigError(f"{type(task.problem).__name__} has no model: its x and y are not a classifier")
    return module


def y_of(y: Tensor, client: int | None) -> Tensor:
    """The y of a client, if each has its own, or the one of all."""
    if y.dim() == 1 and client is None:
        return y
    if y.dim() == 1:
        raise ConfigError(f"all clients share one model: call model() without a client, but got client={client}")
    if client is None or not 0 <= client < len(y):
        raise ConfigError(f"every client has a model of its own: client must be 0 to {len(y) - 1}, but is {client}")
    return y[client]


def classifier(task: Task, x: Tensor, y: Tensor) -> nn.Module | None:
    """The classifier of pixels that x and y are the weights of; None if the problem has none."""
    problem, data = task.problem, task.data
    if not is_modelled(problem) or task.test is None:
        return None
    module = problem.model(x, y).float()
    if isinstance(data, ArrayClients) and data.scaling is not None:
        module = nn.Sequential(Standardize(data.scaling), module)
    return module.eval()


def log_model(
    client: "MlflowClient", experiment_id: str, run_id: str, step: int, module: nn.Module, example: Example
) -> None:
    """Keep a module in MLflow as a graph, with its signature.

    `mlflow.pytorch.log_model` would need the tracking URI and the active run of the whole process.
    """
    import mlflow.pytorch
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model, infer_signature

    output = module(torch.from_numpy(example)).detach().numpy()
    logged = client.create_logged_model(experiment_id, "model", run_id)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.pytorch.save_model(
            module,
            str(Path(folder) / "model"),
            mlflow_model=Model(logged.artifact_location, run_id, model_uuid=logged.model_id, model_id=logged.model_id),
            signature=infer_signature(example, output),
            input_example=example,
            pip_requirements=[f"torch=={torch.__version__.split('+')[0]}"],
            serialization_format="pt2",
        )
        client.log_model_artifacts(logged.model_id, str(Path(folder) / "model"))
    client.finalize_logged_model(logged.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step)])
