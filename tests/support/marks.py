"""A regression problem for data sets whose targets are numbers."""

from torch import nn

from fedmbo_ray.problems.two_losses import DataInfo, TwoLosses


def ridge(data: DataInfo, width: int = 16) -> TwoLosses:
    """Features of one layer, and a linear head with a penalty."""
    features = nn.Sequential(nn.Flatten(), nn.Linear(data.num_inputs, width), nn.Tanh())

    def predict(features, head, inputs):
        return head(features(inputs)).squeeze(-1)

    def upper(features, head, batch):
        return (predict(features, head, batch.inputs) - batch.targets).square()

    def lower(features, head, batch):
        return upper(features, head, batch) + 0.005 * sum(part.square().sum() for part in head.parameters())

    return TwoLosses(features, nn.Linear(width, 1), upper, lower, predict)
