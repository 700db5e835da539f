"""The one-step task on pfl's simulation."""

import os
from typing import Any

import numpy as np
import torch
from pacing import Pace, TaskFile
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import nn


class Net(nn.Module):
    """The network as pfl wants it: with its loss."""

    def __init__(self, task: TaskFile) -> None:
        super().__init__()
        self.task, self.net = task, task.model()

    def loss(self, images: Any, targets: Any, eval: bool = False) -> Any:
        return self.task.loss(self.net, images, targets)

    def metrics(self, images: Any, targets: Any, eval: bool = True) -> dict[str, Any]:
        return {}


class Paced(TrainingProcessCallback):
    """Waits after every round until the next one is wanted."""

    def __init__(self, pace: Pace, net: Net) -> None:
        self.pace, self.net = pace, net

    def on_train_begin(self, *, model: Any) -> Metrics:
        self._wait()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        self._wait()
        return False, Metrics()

    def _wait(self) -> None:
        if not self.pace.wait(self.net.net):
            os._exit(0)


def main() -> None:
    task, rng = TaskFile(os.environ["TASK"]), np.random.default_rng(0)
    net = Net(task)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    users = FederatedDataset(
        lambda user: Dataset(raw_data=task.sample(user, rng)), get_user_sampler("random", list(range(task.clients)))
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**6,
            evaluation_frequency=10**6 + 1,
            train_cohort_size=task.cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=users, val_data=users),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=None,
            local_num_steps=1,
            local_learning_rate=task.step_size,
            local_batch_size=task.batch,
        ),
        model_eval_params=None,
        callbacks=[Paced(Pace(task), net)],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
