"""Which feature extractors clients can compute with: found out by trying, not by their names."""

import pytest
import torch
from tasks import tiny_config
from torch import Tensor, nn
from torch.nn.functional import dropout

from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.rng import stream
from fedmbo_ray.problems.base import Task
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.loop import run


def linear(*more: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), *more)


def batch_norm(input_shape, affine=True) -> nn.Module:
    """Without running statistics it has no buffers."""
    return linear(nn.BatchNorm1d(4, affine=affine, track_running_stats=False), nn.ReLU())


def batch_norm_behind_zeros(input_shape) -> nn.Module:
    last = nn.Linear(4, 4)
    nn.init.zeros_(last.weight)
    return linear(nn.BatchNorm1d(4, track_running_stats=False), last)


class Centered(nn.Module):
    """A batch statistic that no layer's name tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.linear(inputs.flatten(1))
        return features - features.mean(0)


def centered(input_shape) -> nn.Module:
    return Centered()


def running_statistics(input_shape) -> nn.Module:
    return linear(nn.BatchNorm1d(4))


def dropped(input_shape, p=0.5) -> nn.Module:
    return linear(nn.Dropout(p))


class FunctionalDropout(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return dropout(super().forward(inputs.flatten(1)), 0.001)


def functional_dropout(input_shape) -> nn.Module:
    return FunctionalDropout(64, 4)


def group_norm(input_shape) -> nn.Module:
    return linear(nn.GroupNorm(2, 4), nn.ReLU())


def layer_norm(input_shape) -> nn.Module:
    return linear(nn.LayerNorm(4))


def convolution(input_shape) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4), nn.AdaptiveAvgPool2d(2), nn.Flatten())


def task_with(name: str, **parameters: object) -> Task:
    problem = {"name": "hyper_representation", "backbone": {"name": f"{__name__}:{name}", **parameters}}
    return build_task(tiny_config("hyper_representation", problem=problem))


REFUSED = {
    "batch_norm": "must treat every sample by itself",
    "batch_norm_behind_zeros": "must treat every sample by itself",
    "centered": "must treat every sample by itself",
    "running_statistics": "must keep no statistics of batches",
    "dropped": "must be free of randomness",
    "functional_dropout": "must be free of randomness",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_backbone_that_clients_can_not_share_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(ConfigError, match=REFUSED[name]) as caught:
        task_with(name)
    assert "\n" not in str(caught.value)
    assert ("use GroupNorm or LayerNorm instead" in str(caught.value)) == ("randomness" not in REFUSED[name])


@pytest.mark.parametrize("name", ["group_norm", "layer_norm", "convolution"])
def test_norms_of_one_sample_are_accepted(name: str) -> None:
    assert task_with(name).problem.init(stream(0))[0].isfinite().all()


def test_dropout_is_refused_only_where_it_drops() -> None:
    task_with("dropped", p=0.0)
    with pytest.raises(ConfigError, match="free of randomness"):
        task_with("dropped", p=0.01)


def test_trying_a_backbone_leaves_the_random_numbers_of_torch_alone() -> None:
    before = torch.get_rng_state()
    task_with("group_norm")
    with pytest.raises(ConfigError):
        task_with("dropped")
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_accepted_gives_the_same_figures_for_any_block_size() -> None:
    """The reason for it all: clients of one block share a batch."""
    problem = {"name": "hyper_representation", "backbone": f"{__name__}:group_norm", "dtype": "float64"}
    losses = []
    for block_size in (1, 6):
        clients = {"num_clients": 20, "cohort_size": 6, "block_size": block_size}
        *_, last = run(tiny_config("hyper_representation", problem=problem, clients=clients, rounds=3))
        losses.append(last["upper_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_words_take_every_token_of_the_data_or_say_so() -> None:
    from fedmbo_ray.problems.backbones import make_backbone, try_backbone

    assert try_backbone("words", make_backbone({"name": "words", "vocabulary": 20, "width": 7}, (4,)), (4,), 20) == 7
    with pytest.raises(ValueError, match="can't take inputs of shape"):
        try_backbone("words", make_backbone({"name": "words", "vocabulary": 20}, (4,)), (4,), 21)
