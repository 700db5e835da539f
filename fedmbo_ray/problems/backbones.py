"""Feature extractors for hyper-representation: functions from the shape of one input to a torch module."""

import math

from torch import nn


def mlp(input_shape: tuple[int, ...], width: int = 200) -> nn.Module:
    """The paper's first layer: one linear map and a ReLU."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), width), nn.ReLU())


def cnn(input_shape: tuple[int, ...], width: int = 16) -> nn.Module:
    """Two strided convolutions: enough for digits and small colour images."""
    channels, *_ = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
    )


BACKBONES = {"mlp": mlp, "cnn": cnn}
