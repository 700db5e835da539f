"""The state that a run carries from round to round: named tensors, x and y among them."""

import hashlib
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.federation.meter import Meter
from fedmbo_ray.methods.base import State


class RunPosition(NamedTuple):
    """The position of a run. It is assigned as a whole, so an interruption finds it before a round or after it."""

    round: int
    state: State
    meter: Meter
    sums: dict[str, float]  # over rounds, of the figures whose means are recorded
    before: Tensor | None = None  # x before the last round, if exact figures need it
    settled: bool = True  # whether the record and the checkpoint that are due after this round exist


def diverged(state: State, limit: float) -> str | None:
    """Why a state is no longer worth continuing, None if it is."""
    for name, value in state.items():
        if not value.numel() or not (value.is_floating_point() or value.is_complex()):
            continue
        low, high = torch.aminmax(torch.view_as_real(value) if value.is_complex() else value)
        size = max(abs(float(low)), abs(float(high)))  # twenty times as fast as torch's norm
        if not math.isfinite(size):
            return f"{name} is not finite"
        if size > limit and name in ("x", "y"):
            return f"|{name}| = {size:.3g} exceeds {limit:.3g}"
    return None


def shapes(state: object) -> Mapping[str, object]:
    """Name, shape and dtype of the tensors in a state; what else it holds, by its type."""
    entries = state.items() if isinstance(state, dict) else [("state", state)]
    return {
        name: (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else type(value).__name__
        for name, value in entries
    }


def require_same_shapes(state: object, before: State, algorithm: str) -> None:
    """Raise RunFailed unless a round has returned the tensors that it was given."""
    if not isinstance(state, dict) or shapes(state) != shapes(before):
        rule = f"{algorithm}.round must return the tensors that init made"
        raise RunFailed(f"{rule}, {shapes(before)}, but returned {shapes(state)}")


def sha256(vector: Tensor) -> str:
    """The digest of a vector's bytes."""
    return hashlib.sha256(vector.contiguous().numpy().tobytes()).hexdigest()
