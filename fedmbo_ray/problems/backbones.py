"""Feature extractors for hyper-representation: those that are shipped, and those that users bring, tried out.

A backbone is a function from the shape of one input, and parameters, to a torch module.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from fedmbo_ray.core.errors import choices, first_line, quoted
from fedmbo_ray.core.imports import imported, is_path
from fedmbo_ray.core.memory import require_memory
from fedmbo_ray.core.settings import require_json
from fedmbo_ray.problems.flat_module import FlatModule, flatten

Shape = tuple[int, ...]  # of one input: channels, height, width
Spec = dict[str, Any]  # a backbone's name and parameters, as a config gives them
TOLERANCE = 1e-3  # relative; sums of float32 in another order differ by less, batch statistics by more


def mlp(input_shape: Shape, width: int = 200) -> nn.Module:
    """The paper's first layer: one linear map and a ReLU."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), width), nn.ReLU())


def cnn(input_shape: Shape, width: int = 16) -> nn.Module:
    """Two strided convolutions: enough for digits and small colour images."""
    channels, *_ = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
    )


def words(input_shape: Shape, vocabulary: int, embedding: int = 16, width: int = 64) -> nn.Module:
    """For tokens 0, …, vocabulary − 1: a vector for each, all of them side by side, then one layer as in `mlp`."""
    return nn.Sequential(
        nn.Embedding(vocabulary, embedding),
        nn.Flatten(),
        nn.Linear(math.prod(input_shape) * embedding, width),
        nn.ReLU(),
    )


BACKBONES: dict[str, Callable[..., nn.Module]] = {"mlp": mlp, "cnn": cnn, "words": words}


def name_and_parameters(backbone: object) -> Spec:
    spec = dict(backbone) if isinstance(backbone, Mapping) else {"name": backbone}
    if not isinstance(spec.get("name"), str):
        raise ValueError(f"a backbone must be a name or a mapping with a name, but got {quoted(backbone)}")
    require_json(spec)
    return spec


def find_backbone(name: str) -> Callable[..., nn.Module]:
    """The function behind a shipped name or `package.module:function`."""
    if name in BACKBONES:
        return BACKBONES[name]
    if not is_path(name):
        raise ValueError(f"unknown backbone {name!r}; {choices(name, list(BACKBONES))}, or package.module:function")
    return cast("Callable[..., nn.Module]", imported(name, "backbone"))


def make_backbone(spec: Spec, input_shape: Shape, vocabulary: int = 0) -> nn.Module:
    """The module that a config asks for; for tokens, the function is also given how many there are."""
    name, parameters = spec["name"], {key: value for key, value in spec.items() if key != "name"}
    if vocabulary and "vocabulary" not in inspect.signature(find_backbone(name)).parameters:
        raise ValueError(f"for tokens a backbone must take `vocabulary`, as words does, but {name!r} does not")
    if vocabulary:
        parameters = {"vocabulary": vocabulary, **parameters}
    try:
        if name in BACKBONES:  # tried without memory first
            with torch.device("meta"):
                sizes = [each.nbytes for each in find_backbone(name)(input_shape, **parameters).parameters()]
            require_memory(sum(sizes))
        backbone = find_backbone(name)(input_shape, **parameters)
    except Exception as error:  # whatever a user's function raises
        raise ValueError(f"backbone {name!r} can't be made with {quoted(parameters)}: {first_line(error)}") from None
    if not isinstance(backbone, nn.Module) or not any(True for _ in backbone.parameters()):
        raise ValueError(f"a backbone must be a torch module with parameters, but {name!r} gave {backbone!r}")
    return backbone


def try_backbone(name: str, backbone: nn.Module, input_shape: Shape, vocabulary: int = 0) -> int:
    """How many features a backbone gives for one input; raises a ValueError if clients can't compute with it.

    It is tried out on random inputs, tokens if there is a vocabulary, in the mode that it comes in.
    """
    buffers = [tensor.clone() for tensor in backbone.buffers()]
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(6, *input_shape, generator=generator)
    if vocabulary:
        inputs = torch.randint(vocabulary, inputs.shape, generator=generator)
        inputs[0] = vocabulary - 1  # must have a place, too
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        num_features = count_features(backbone, inputs[:2])
        if any(not torch.equal(before, now) for before, now in zip(buffers, backbone.buffers(), strict=True)):
            raise ValueError(
                f"a backbone must keep no statistics of batches, but {name!r} does; use GroupNorm or LayerNorm instead "
                "of BatchNorm"
            )
        require_function_of_one_sample(name, backbone, inputs, generator)
    return num_features


def require_function_of_one_sample(name: str, backbone: nn.Module, inputs: Tensor, generator: torch.Generator) -> None:
    """Raise a ValueError if a sample's features depend on chance, or on the samples that share a batch with it.

    Clients that are computed in one call share a batch, so their samples would mix.
    """
    x, module = flatten(backbone), FlatModule(backbone)
    x = x + 0.1 * torch.randn(x.shape, generator=generator)  # a layer that starts at zero hides what is before it
    before = torch.get_rng_state()
    first, again, other = (module(x, inputs[rows]) for rows in ([0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 0]))
    if not torch.equal(torch.get_rng_state(), before) or not torch.equal(first.nan_to_num(), again.nan_to_num()):
        raise ValueError(f"a backbone must be free of randomness, but {name!r} has some (dropout, say, needs p=0)")
    if not close(first[0], other[2]):
        raise ValueError(
            f"a backbone must treat every sample by itself, but features of {name!r} depend on the other samples of a "
            "batch; use GroupNorm or LayerNorm instead of BatchNorm"
        )


def count_features(backbone: nn.Module, inputs: Tensor) -> int:
    """The number of features, tried out on two inputs."""
    try:
        shape = tuple(backbone(inputs).shape)
    except Exception as error:  # whatever a user's module raises
        expected = tuple(inputs.shape[1:])
        raise ValueError(f"the backbone can't take inputs of shape {expected}: {first_line(error)}") from None
    if len(shape) != 2 or shape[0] != 2 or shape[1] < 1:
        raise ValueError(f"a backbone must give one row of features per input, but for two inputs it gave {shape}")
    return shape[1]


def close(a: Tensor, b: Tensor) -> bool:
    """Whether two rows of features are the same but for the order in which sums are formed."""
    return bool(torch.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * float(a.abs().max()), equal_nan=True))
