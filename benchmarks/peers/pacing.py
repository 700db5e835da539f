"""What the peers' scripts share; it needs torch and numpy only."""

import json
import os
import sys
from typing import Any

import numpy as np
import torch
from torch import nn

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)


class TaskFile:
    """The one-step task: m clients, n of them take a step of SGD on `batch` samples, their weights are averaged."""

    def __init__(self, path: str) -> None:
        arrays = np.load(path)
        self.images, self.targets = torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["targets"])
        self.test_images = torch.from_numpy(arrays["test_images"])
        self.test_targets = torch.from_numpy(arrays["test_targets"])
        self.order, self.start, self.size = arrays["order"], arrays["start"], arrays["size"]
        self.x, self.y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
        self.clients, self.cohort, self.batch = len(self.size), int(arrays["n"]), int(arrays["batch"])
        self.step_size, self.regularization = float(arrays["step_size"]), float(arrays["regularization"])

    def sample(self, client: int, rng: np.random.Generator) -> tuple[Any, Any]:
        rows = self.order[self.start[client] + rng.integers(self.size[client], size=self.batch)]
        return self.images[rows], self.targets[rows]

    def model(self) -> nn.Module:
        """With the starting weights."""
        inputs, classes = self.images.shape[1], int(self.targets.max()) + 1
        width = (len(self.y) - classes) // classes
        model = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, classes))
        vector = torch.cat([self.x, self.y])
        nn.utils.vector_to_parameters(vector, model.parameters())
        return model

    def loss(self, model: nn.Module, images: Any, targets: Any) -> Any:
        """Cross-entropy, and a penalty on the last layer."""
        penalty = sum(parameter.square().sum() for parameter in list(model.parameters())[2:])
        return nn.functional.cross_entropy(model(images), targets) + 0.5 * self.regularization * penalty

    def figures(self, model: nn.Module) -> dict[str, float]:
        with torch.no_grad():
            logits = model(self.test_images)
        accuracy = (logits.argmax(1) == self.test_targets).double().mean()
        loss = nn.functional.cross_entropy(logits, self.test_targets)
        return {"test_loss": float(loss), "test_accuracy": float(accuracy)}


class Pace:
    """Does what standard input asks for: a number of rounds, figures, or the end."""

    def __init__(self, task: TaskFile) -> None:
        self.task, self.left, self.rounds = task, 0, 0
        self.owed = True  # an answer: first that we are ready, then that the rounds are done

    def wait(self, model: nn.Module) -> bool:
        """Before every round: return when it is wanted, False at the end."""
        while self.left == 0:
            if self.owed:
                self._answer({})
            self.owed = False
            word = sys.stdin.readline().strip()
            if word in ("end", ""):
                return False
            if word == "figures":
                self._answer({"rounds": self.rounds, **self.task.figures(model)})
            else:
                self.left, self.owed = int(word), True
        self.left -= 1
        self.rounds += 1
        return True

    @staticmethod
    def _answer(figures: dict[str, float]) -> None:
        print("@@ " + json.dumps(figures), flush=True)
