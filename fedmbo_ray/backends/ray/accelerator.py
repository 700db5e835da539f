"""How a client actor uses its GPU: with as little waiting as possible, and with the same bits every time.

Samples, the problem's own tensors and x stay on the GPU, once for each actor. An answer leaves it in one copy.
"""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedmbo_ray.backends.ray.messages import Arrays
from fedmbo_ray.data.array_clients import ArrayClients
from fedmbo_ray.data.batches import ClientData
from fedmbo_ray.problems.base import Problem

GPU_ARITHMETIC = "no TF32, no autotuning, deterministic cuDNN"  # set by `prepared_gpu`; noted in a run's last record
FOR_DATA = 0.5  # the part of an actor's share of GPU memory that data may take; the rest is for x and computing


def prepared_gpu(share: float) -> float:
    """Set up an actor's share of a GPU; returns how many bytes of it data may take.

    Memory is limited to the share. Products have full float32 precision, and sums are always formed in the same order.
    """
    torch.cuda.set_per_process_memory_fraction(min(share, 1.0))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = False, True
    return FOR_DATA * min(share, 1.0) * torch.cuda.get_device_properties(0).total_memory


def data_on(device: torch.device, data: ClientData, room: float) -> ClientData:
    """The data, with their samples on a device if they are arrays and fit there; others are copied when drawn."""
    return data.on(device, room) if isinstance(data, ArrayClients) and device.type != "cpu" else data


def problem_on(device: torch.device, problem: Problem) -> Problem:
    """The problem with its own tensors on a device."""
    if device.type == "cpu" or not is_dataclass(problem):
        return problem
    own = {each.name: getattr(problem, each.name) for each in fields(problem) if each.init}
    moved: Any = {name: value.to(device) for name, value in own.items() if isinstance(value, Tensor)}
    return replace(problem, **moved) if moved else problem


def on_host(results: list[Tensor]) -> Arrays:
    """Tensors as arrays; those on an accelerator leave it together, in one copy."""
    results = [each.detach() for each in results]
    away = [each for each in results if each.device.type != "cpu"]
    if away:
        flat = torch.cat([each.contiguous().view(-1).view(torch.uint8) for each in away]).cpu()
        parts = iter(flat.split([each.nbytes for each in away]))
        results = [
            each if each.device.type == "cpu" else next(parts).clone().view(each.dtype).view(each.shape)
            for each in results
        ]
    return [each.numpy() for each in results]
