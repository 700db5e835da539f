"""Who takes part in the quadratic problem: the means over all clients, each client's deviation, and samples of both."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.core.rng import Floats, Seeds, draw_seeds, fold, normals, stream
from fedmbo_ray.data.batches import ClientIds, Draw

if TYPE_CHECKING:
    from fedmbo_ray.problems.quadratic import Quadratic

MOST_STORED = 2_000_000  # floats that describe clients; those that would take more are made on demand


class LowerBatch(NamedTuple):
    """g(x, y) = ½ y'Ay − y'(B s(x) + c); linear in A, B, c, so means of batches are batches of means."""

    A: Tensor
    B: Tensor
    c: Tensor

    def merged(self) -> "LowerBatch":
        return LowerBatch(*(field.mean(0) for field in self))


class UpperBatch(NamedTuple):
    """f(x, y) = ½‖y‖² − y't + (ρ/2)‖x‖² − x'u + r; linear in t, u, r."""

    t: Tensor
    u: Tensor
    r: Tensor

    def merged(self) -> "UpperBatch":
        return UpperBatch(*(field.mean(0) for field in self))


@dataclass(frozen=True)
class Population:
    """Samples of A_i, B_i, c_i (training split) and of t_i, u_i (validation split), made on demand."""

    settings: "Quadratic"
    seed: int
    num_clients: int

    @cached_property
    def mean_lower(self) -> LowerBatch:
        """Ā, B̄, c̄."""
        s, rng = self.settings, stream(self.seed, "quadratic", "lower")
        p, q = s.upper_dim, s.lower_dim
        rotation = np.linalg.qr(rng.standard_normal((q, q)))[0]
        low, high = s.strong_convexity + s.hessian_margin, s.smoothness - s.hessian_margin
        A = rotation @ np.diag(np.linspace(low, high, q)) @ rotation.T
        B = rng.standard_normal((q, p))
        B *= 0.8 * s.smoothness / np.linalg.norm(B, 2)
        return LowerBatch(*map(torch.from_numpy, (A, B, 0.5 * rng.standard_normal(q))))

    @cached_property
    def mean_upper(self) -> UpperBatch:
        """t̄, ρū and the mean of ½‖t_i‖² + (ρ/2)‖u_i‖²."""
        s, rng = self.settings, stream(self.seed, "quadratic", "upper")
        t, u = np.full(s.lower_dim, s.target), 0.5 * rng.standard_normal(s.upper_dim)
        paired = (self.num_clients - self.num_clients % 2) / self.num_clients
        spread = paired * s.heterogeneity**2
        r = 0.5 * (t @ t + spread) + 0.5 * s.upper_curvature * (u @ u + 0.25 * spread)
        return UpperBatch(torch.from_numpy(t), torch.from_numpy(s.upper_curvature * u), torch.tensor(r))

    @property
    def stored(self) -> bool:
        p, q = self.settings.upper_dim, self.settings.lower_dim
        return self.num_clients * (q * (q + p + 2) + p) <= MOST_STORED

    @cached_property
    def deviations(self) -> tuple[Floats, ...]:
        """By how much each client's A, B, c, t and u differ from the mean."""
        clients = np.arange(self.num_clients)
        return (*self._made_lower(clients), *self._made_upper(clients))

    @cached_property
    def client_seed(self) -> Seeds:
        """The seed (as an array of one) that all clients' parameters come from."""
        return draw_seeds(stream(self.seed, "quadratic", "clients"), 1)

    @property
    def num_samples(self) -> None:
        return None

    def samples(self, clients: ClientIds, draw: Draw) -> int:
        """All that a client has counts as one sample: it is an expectation."""
        return (draw.size or 1) * draw.total(clients)

    def draw(self, clients: ClientIds, seeds: Seeds, draw: Draw, device: torch.device) -> LowerBatch | UpperBatch:
        batches = self.lower_batches if draw.split == "train" else self.upper_batches
        each = fold(seeds[:, None], np.arange(draw.height)).reshape(-1)
        batch = batches(np.repeat(clients, draw.height), each, draw.size)
        shape = (len(seeds),) if draw.count is None else (len(seeds), draw.height)
        return type(batch)(*(field.unflatten(0, shape).to(device) for field in batch))

    def lower_batches(self, clients: ClientIds, seeds: Seeds, size: int | None) -> LowerBatch:
        """Means over `size` samples of A_i + E, B_i + F, c_i + e, or over all there are."""
        s, (p, q) = self.settings, (self.settings.upper_dim, self.settings.lower_dim)
        A, B, c = self.lower_deviations(clients)
        E = _sphere(fold(seeds, 0), size, (q, q), s.hessian_noise, symmetric=True)
        F = _sphere(fold(seeds, 1), size, (q, p), s.jacobian_noise)
        e = _sphere(fold(seeds, 2), size, (q,), s.gradient_noise)
        deviations = LowerBatch(*map(torch.from_numpy, (A + E, B + F, c + e)))
        return LowerBatch(*(mean + part for mean, part in zip(self.mean_lower, deviations, strict=True)))

    def lower_deviations(self, clients: ClientIds) -> tuple[Floats, ...]:
        """A_i − Ā, B_i − B̄, c_i − c̄."""
        return tuple(part[clients] for part in self.deviations[:3]) if self.stored else self._made_lower(clients)

    def upper_deviations(self, clients: ClientIds) -> tuple[Floats, ...]:
        """t_i − t̄, u_i − ū."""
        return tuple(part[clients] for part in self.deviations[3:]) if self.stored else self._made_upper(clients)

    def _made_lower(self, clients: ClientIds) -> tuple[Floats, ...]:
        s, (p, q) = self.settings, (self.settings.upper_dim, self.settings.lower_dim)
        pair, sign = self._pairs(clients)
        A = _sphere(fold(pair, 0), 1, (q, q), s.hessian_spread, symmetric=True)
        B = _sphere(fold(pair, 1), 1, (q, p), 0.2 * s.heterogeneity * s.smoothness)
        c = _sphere(fold(pair, 2), 1, (q,), s.heterogeneity)
        return sign[:, None, None] * A, sign[:, None, None] * B, sign[:, None] * c

    def upper_batches(self, clients: ClientIds, seeds: Seeds, size: int | None) -> UpperBatch:
        """Means over `size` samples of t_i + e, ρu_i + e' with ‖(e, e')‖ = σ_f."""
        s, (p, q) = self.settings, (self.settings.upper_dim, self.settings.lower_dim)
        t_bar, u_bar = self.mean_upper.t.numpy(), self.mean_upper.u.numpy() / s.upper_curvature
        t, u = (mean + part for mean, part in zip((t_bar, u_bar), self.upper_deviations(clients), strict=True))
        r = 0.5 * (t**2).sum(1) + 0.5 * s.upper_curvature * (u**2).sum(1)
        e = _sphere(fold(seeds, 3), size, (q + p,), s.gradient_noise)
        return UpperBatch(*map(torch.from_numpy, (t + e[:, :q], s.upper_curvature * u + e[:, q:], r)))

    def _made_upper(self, clients: ClientIds) -> tuple[Floats, ...]:
        s, (pair, sign) = self.settings, self._pairs(clients)
        t = _sphere(fold(pair, 3), 1, (s.lower_dim,), s.heterogeneity)
        return sign[:, None] * t, sign[:, None] * _sphere(fold(pair, 4), 1, (s.upper_dim,), 0.5 * s.heterogeneity)

    def _pairs(self, clients: ClientIds) -> tuple[Seeds, Floats]:
        """The seed of each client's pair, and its sign; with an odd number of clients the last has sign 0."""
        sign = np.where(clients % 2 == 0, 1.0, -1.0)
        single = (clients == self.num_clients - 1) & (self.num_clients % 2 == 1)
        return fold(self.client_seed, clients // 2), np.where(single, 0.0, sign)


def _sphere(seeds: Seeds, count: int | None, shape: tuple[int, ...], radius: float, symmetric: bool = False) -> Floats:
    """For each seed the mean of `count` arrays uniform on the sphere of that Frobenius radius, or the expectation."""
    if radius == 0 or count is None:
        return np.zeros((len(seeds), *shape))
    z = normals(seeds, count * int(np.prod(shape))).reshape(len(seeds), count, *shape)
    if symmetric:
        z = z + z.swapaxes(-1, -2)
    axes = tuple(range(2, z.ndim))
    return (z * (radius / np.sqrt((z**2).sum(axes, keepdims=True)))).mean(1)
