"""What a run has learned, as a torch module that can be kept, loaded and served without this package."""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedmbo_ray.checkpoints import RunFolder
from fedmbo_ray.problems.base import Task


class Standardize(nn.Module):
    """Pixels as the data set has them (0 to 255, say) to the numbers that clients see."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("scale", torch.tensor(1 / std))

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs - self.mean) * self.scale


def model_of(task: Task, folder: RunFolder) -> tuple[nn.Module, Any] | None:
    """The classifier of pixels in a run's newest checkpoint, and an example of what it takes; None if there is none."""
    checkpoint, problem, data = folder.latest(), task.problem, task.data
    if checkpoint is None or not hasattr(problem, "model") or task.test is None:
        return None
    state: dict[str, Any] = checkpoint["state"]
    classifier = problem.model(state["x"], state["y"]).float()
    standardize = Standardize(data.mean, data.std)  # type: ignore[attr-defined]
    shape = task.test.inputs.shape[1:]
    return nn.Sequential(standardize, classifier).eval(), np.zeros((2, *shape), dtype=np.float32)


def log_model(uri: str, run_id: str, module: nn.Module, example: Any) -> None:
    """Keep a module in MLflow as a graph, with its signature."""
    import mlflow
    import mlflow.pytorch

    output = module(torch.from_numpy(example)).detach().numpy()
    mlflow.set_tracking_uri(uri)
    with warnings.catch_warnings(), mlflow.start_run(run_id=run_id):
        warnings.simplefilter("ignore")
        mlflow.pytorch.log_model(
            module,
            name="model",
            signature=mlflow.models.infer_signature(example, output),
            input_example=example,
            pip_requirements=[f"torch=={torch.__version__.split('+')[0]}"],
            serialization_format="pt2",
        )
