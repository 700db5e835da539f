"""Losses are tried out before a run starts: what clients can't compute with is refused, what may mislead is said."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from fedmbo_ray.core.errors import ConfigError, first_line
from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.data.array_clients import ArrayClients
from fedmbo_ray.data.batches import Batch, Draw

if TYPE_CHECKING:
    from fedmbo_ray.problems.two_losses import ModuleLoss, TwoLossesProblem

TOLERANCE = 1e-3  # relative; sums of float32 in another order differ by less, batch statistics by more
KRYLOV = 80  # directions in which curvature is looked for, at most
console = Console(stderr=True, soft_wrap=True)


def require_loss_per_sample(problem: "TwoLossesProblem", name: str, clients: ArrayClients) -> None:
    """Raise a ConfigError unless both losses are one number per sample, which depends on this sample alone."""
    x, y = problem.init(stream(0, "probe"))
    buffers = [tensor.clone() for tensor in _buffers(problem)]
    for split, title, loss in (
        ("validation", "upper", problem.losses.upper),
        ("train", "lower", problem.losses.lower),
    ):
        batch = _samples(clients, split, 4)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            values = _tried(problem, loss, f"the {title} loss of {name!r}", x, y, batch)
            again = problem.each(loss, x, y, batch)
            other = problem.each(loss, x, y, Batch(*(field[[3, 0]] for field in batch)))
        if not torch.equal(values.nan_to_num(), again.nan_to_num()):
            raise ConfigError(f"the {title} loss of {name!r} must be free of randomness (dropout, say, needs p=0)")
        if not torch.allclose(values[0], other[1], rtol=TOLERANCE, atol=TOLERANCE * float(values.abs().max())):
            raise ConfigError(
                f"the {title} loss of a sample must depend on this sample alone, but that of {name!r} depends on the "
                "others in its batch; use GroupNorm or LayerNorm instead of BatchNorm"
            )
    if any(not torch.equal(before, now) for before, now in zip(buffers, _buffers(problem), strict=True)):
        raise ConfigError(
            f"modules must keep no statistics of batches, but those of {name!r} do; use GroupNorm instead"
        )


def _tried(problem: "TwoLossesProblem", loss: "ModuleLoss", what: str, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
    """The losses of a batch, if they are what they should be."""
    try:
        values = problem.each(loss, x, y, batch)
    except Exception as error:  # whatever a user's function raises
        shapes = f"inputs {tuple(batch.inputs.shape)}, targets {tuple(batch.targets.shape)}"
        raise ConfigError(
            f"{what} can't be computed on {shapes}: {type(error).__name__}: {first_line(error)}"
        ) from error
    if not isinstance(values, Tensor) or values.shape != batch.targets.shape[:1]:
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ConfigError(
            f'{what} must be one number per sample, as with reduction="none": for {len(batch.targets)} samples it '
            f"should have the shape ({len(batch.targets)},), but has {shape}"
        )
    if not bool(torch.isfinite(values).all()):
        raise ConfigError(f"{what} must be finite at the starting point, but is {values.tolist()}")
    return values


def warn_unless_convex(problem: "TwoLossesProblem", name: str, clients: ArrayClients) -> None:
    """Say so if the lower loss has a direction without curvature at the starting point."""
    smallest, largest = curvatures(problem, clients)
    if smallest <= 1e-6 * largest:
        console.print(
            f"warning: the lower loss of {name!r} is not strongly convex in y at the starting point: its smallest "
            f"curvature is {smallest:.3g}, its largest {largest:.3g}; add a penalty such as 0.01·‖y‖²",
            markup=False,
            highlight=False,
        )


def curvatures(problem: "TwoLossesProblem", clients: ArrayClients) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of ∇²_yy g on a batch of one client; estimates if y is long."""
    x, y = problem.init(stream(0, "probe"))
    batch, size = _samples(clients, "train", 64), min(len(y), KRYLOV)
    start = torch.from_numpy(stream(0, "direction").standard_normal(len(y))).to(y.dtype)
    basis, projected = torch.zeros(size, len(y), dtype=torch.float64), torch.zeros(size, size, dtype=torch.float64)
    u = start.double() / start.double().norm()
    (slope,) = torch.autograd.grad(problem.lower(x, y.requires_grad_(), batch), y, create_graph=True)
    for k in range(size):  # Lanczos, with every vector made orthogonal to all before it
        basis[k] = u
        product = torch.autograd.grad(slope, y, u.to(y.dtype), retain_graph=True)[0].double()
        projected[k, : k + 1] = projected[: k + 1, k] = basis[: k + 1] @ product
        for _ in range(2):
            product = product - basis[: k + 1].T @ (basis[: k + 1] @ product)
        if float(product.norm()) <= 1e-10 * float(projected[k, k].abs() + 1e-30):
            projected = projected[: k + 1, : k + 1]
            break
        u = product / product.norm()
    values = torch.linalg.eigvalsh(projected)
    return float(values[0]), float(values[-1])


def _samples(clients: ArrayClients, split: str, size: int) -> Batch:
    """Samples of the first client."""
    seeds = draw_seeds(stream(0, "probe"), 1)
    batch = clients.draw(np.zeros(1, dtype=np.int64), seeds, Draw(split, size), torch.device("cpu"))  # type: ignore[arg-type]
    return Batch(*(field[0] for field in batch))


def _buffers(problem: "TwoLossesProblem") -> list[Tensor]:
    return [*problem.losses.x.buffers(), *problem.losses.y.buffers()]
