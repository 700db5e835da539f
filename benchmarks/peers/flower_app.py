"""The one-step task as Flower apps; a module of its own, which the Ray actors of Flower's simulation can import."""

import functools
import os
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from pacing import Pace, TaskFile

client = ClientApp()
server = ServerApp()


@functools.lru_cache(maxsize=1)
def task() -> TaskFile:
    return TaskFile(os.environ["TASK"])


@client.train()
def train(message: Message, context: Context) -> Message:
    data = task()
    model = data.model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    number = int(context.node_config["partition-id"])
    rng = np.random.default_rng([number, int(message.content["config"]["server-round"])])
    optimizer = torch.optim.SGD(model.parameters(), lr=data.step_size)
    data.loss(model, *data.sample(number, rng)).backward()
    optimizer.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": data.batch}),
    }
    return Message(content=RecordDict(content), reply_to=message)


class Paced(FedAvg):
    """FedAvg that waits before every round until it is wanted."""

    def __init__(self, pace: Pace, **settings: Any) -> None:
        super().__init__(**settings)
        self.pace = pace

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: Any, grid: Grid) -> Any:
        model = self.pace.task.model()
        model.load_state_dict(arrays.to_torch_state_dict())
        if not self.pace.wait(model):
            os._exit(0)
        return super().configure_train(server_round, arrays, config, grid)


@server.main()
def main(grid: Grid, context: Context) -> None:
    data = task()
    strategy = Paced(
        Pace(data),
        fraction_train=data.cohort / data.clients,
        fraction_evaluate=0.0,
        min_train_nodes=data.cohort,
        min_available_nodes=data.clients,
    )
    strategy.start(grid=grid, initial_arrays=ArrayRecord(data.model().state_dict()), num_rounds=10**6)
