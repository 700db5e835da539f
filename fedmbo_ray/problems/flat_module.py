"""A torch module as a function of its parameters, which are one flat vector."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedmbo_ray.core.compat import plain_attention


class FlatModule:
    """A module whose parameters are an argument, x.

    What `functional_call` does, without its price: with a small model it takes longer than the model.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        places: dict[int, list[tuple[dict[str, nn.Parameter | None], str]]] = {
            id(parameter): [] for parameter in module.parameters()
        }
        for owner in module.modules():
            for name, parameter in owner._parameters.items():
                if parameter is not None:
                    places[id(parameter)].append((owner._parameters, name))
        self.places = list(places.values())  # a tied parameter has several
        self.shapes = [parameter.shape for parameter in module.parameters()]
        self.sizes = [shape.numel() for shape in self.shapes]
        self.own = list(module.parameters())
        owners = [owner._buffers for owner in module.modules()]
        self.buffers = [(buffers, name) for buffers in owners for name, value in buffers.items() if value is not None]

    def __call__(self, x: Tensor, inputs: Tensor) -> Tensor:
        with self.at(x) as module:
            return module(inputs)

    @contextmanager
    def at(self, x: Tensor) -> Iterator[nn.Module]:
        """In this context, the parameters of the module are parts of x. Its buffers are moved to the device of x."""
        for buffers, name in self.buffers:
            value = buffers[name]
            buffers[name] = value if value is None else value.to(x.device)
        self._place(part.view(shape) for part, shape in zip(x.split(self.sizes), self.shapes, strict=True))
        try:
            with plain_attention():
                yield self.module
        finally:
            self._place(self.own)

    def _place(self, tensors: Iterable[Tensor]) -> None:
        for places, tensor in zip(self.places, tensors, strict=True):
            for parameters, name in places:
                parameters[name] = tensor  # type: ignore[assignment]  # x is no Parameter, and torch does not mind


def flatten(module: nn.Module) -> Tensor:
    """The parameters of a module as one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
