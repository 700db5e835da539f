"""Heterogeneous quadratic clients with closed-form y*(x), Φ(x) and ∇Φ(x): the test-bed of the theory."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor

from fedmbo_ray.cards import OURS, Card
from fedmbo_ray.data import Batch, Clients, Draw, Federated
from fedmbo_ray.problems.base import Task
from fedmbo_ray.registry import Count, NonNegative, Positive, settings
from fedmbo_ray.rng import Floats, Seeds, draw_seeds, fold, normals, stream

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


@settings
class Quadratic:
    """g_i = ½ y'A_i y − y'(B_i s(x) + c_i), f_i = ½‖y − t_i‖² + (ρ/2)‖x − u_i‖², s(x) = x + a sin x.

    Every sample's Hessian lies between μI and ℓI, as the theory asks (per sample, not only in the mean).
    Clients come in pairs that deviate from the mean by ±: the means over clients are known exactly for
    any number of clients, and millions of them need not be stored. All noise has a fixed length, so its variances are
    known exactly, too.
    """

    card: ClassVar[Card] = Card("this package", OURS)

    needs_data: ClassVar[bool] = False

    seed: Annotated[int, Ge(0)] | None = None  # of the clients and of x⁰; None: that of the run
    upper_dim: Count = 4  # p
    lower_dim: Count = 4  # q
    strong_convexity: Positive = 0.3  # μ
    smoothness: Positive = 1.0  # ℓ
    upper_curvature: Positive = 0.3  # ρ
    target: float = 2.0  # every coordinate of t̄, the mean of what clients want y to be
    nonconvexity: NonNegative = 0.0  # a
    heterogeneity: NonNegative = 1.0
    gradient_noise: NonNegative = 0.5  # σ_f = σ_{g,1} at s(x) = y = 0
    hessian_noise: NonNegative = 0.1
    jacobian_noise: NonNegative = 0.1

    def __post_init__(self) -> None:
        if self.hessian_margin * 2 > self.smoothness - self.strong_convexity:
            raise ValueError(
                "`2·(heterogeneity·(smoothness − strong_convexity)/7 + hessian_noise) <= smoothness − "
                f"strong_convexity` must hold, but got {self.heterogeneity=}, {self.hessian_noise=}, "
                f"{self.smoothness=}, {self.strong_convexity=}".replace("self.", "")
            )

    @property
    def hessian_spread(self) -> float:
        """‖A_i − Ā‖_F of every client."""
        return self.heterogeneity * (self.smoothness - self.strong_convexity) / 7

    @property
    def hessian_margin(self) -> float:
        return self.hessian_spread + self.hessian_noise

    def build(self, seed: int, num_clients: int, data: Federated | None = None) -> Task:
        problem = QuadraticProblem(self, seed if self.seed is None else self.seed, num_clients)
        return Task(problem, QuadraticClients(problem), None)


@dataclass(frozen=True)
class QuadraticProblem:
    """The losses, and everything about them in closed form (float64)."""

    settings: Quadratic
    seed: int
    num_clients: int

    stacks = stacks_all = True

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
        return (*made_lower(self, clients), *made_upper(self, clients))

    @cached_property
    def client_seed(self) -> Seeds:
        """The seed (as an array of one) that all clients' parameters come from."""
        return draw_seeds(stream(self.seed, "quadratic", "clients"), 1)

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """x⁰ at distance √p from the minimiser of the convex case, y⁰ = y*(x⁰)."""
        A, B, c = self.mean_lower
        rng = rng if self.settings.seed is None else stream(self.seed, "quadratic", "start")
        direction = rng.standard_normal(self.settings.upper_dim)
        S = torch.linalg.solve(A, B)  # y* = S x + A⁻¹c when s(x) = x
        hessian = self.settings.upper_curvature * torch.eye(len(direction), dtype=S.dtype) + S.T @ S
        residual = self.mean_upper.t - torch.linalg.solve(A, c)
        minimiser = torch.linalg.solve(hessian, self.mean_upper.u + S.T @ residual)
        x = minimiser + torch.from_numpy(direction / np.linalg.norm(direction) * len(direction) ** 0.5)
        return x, self.y_star(x)

    def s(self, x: Tensor) -> Tensor:
        return x + self.settings.nonconvexity * torch.sin(x) if self.settings.nonconvexity else x

    def lower(self, x: Tensor, y: Tensor, batch: LowerBatch) -> Tensor:
        Ay, Bs = product(batch.A, y), product(batch.B, self.s(x))
        return (y * (0.5 * Ay - Bs - batch.c)).sum(-1)

    def upper(self, x: Tensor, y: Tensor, batch: UpperBatch) -> Tensor:
        rho = self.settings.upper_curvature
        return (y * (0.5 * y - batch.t)).sum(-1) + (x * (0.5 * rho * x - batch.u)).sum(-1) + batch.r

    @cached_property
    def inverse(self) -> Tensor:
        """Ā⁻¹."""
        return torch.linalg.inv(self.mean_lower.A)

    def y_star(self, x: Tensor) -> Tensor:
        """y*(x) = Ā⁻¹(B̄ s(x) + c̄)."""
        _, B, c = self.mean_lower
        return self.inverse @ (B @ self.s(x) + c)

    def value(self, x: Tensor) -> Tensor:
        """Φ(x)."""
        return self.upper(x, self.y_star(x), self.mean_upper)

    def hypergradient(self, x: Tensor) -> Tensor:
        """∇Φ(x)."""
        return self.surrogate(x, self.y_star(x))

    def surrogate(self, x: Tensor, y: Tensor, terms: int | None = None, smoothness: float | None = None) -> Tensor:
        """∇_x f − ∇²_xy g · v with v = Ā⁻¹∇_y f, or its Neumann sum (1/ℓ)Σ_{j<N}(I − Ā/ℓ)^j ∇_y f."""
        A, _, _ = self.mean_lower
        g = y - self.mean_upper.t
        if terms is None:
            v = self.inverse @ g
        else:
            v, power = torch.zeros_like(g), g / (smoothness or self.settings.smoothness)
            for _ in range(terms):
                v, power = v + power, power - A @ power / (smoothness or self.settings.smoothness)
        return self.settings.upper_curvature * x - self.mean_upper.u - self.jacobian(x) @ v

    def jacobian(self, x: Tensor) -> Tensor:
        """∇²_xy g(x, y), of shape (p, q)."""
        B = self.mean_lower.B.T
        return -(1 + self.settings.nonconvexity * torch.cos(x))[:, None] * B if self.settings.nonconvexity else -B

    def sample_variance(self, x: Tensor, y: Tensor) -> float:
        """σ_{g,1}²: E‖∇_y g_i(x, y; ζ) − ∇_y g_i(x, y)‖² over one sample ζ of any client."""
        s = self.settings
        hessian = s.hessian_noise**2 * float(y @ y) / s.lower_dim
        jacobian = s.jacobian_noise**2 * float(self.s(x) @ self.s(x)) / s.upper_dim
        return s.gradient_noise**2 + hessian + jacobian

    def client_variance(self, x: Tensor, y: Tensor) -> float:
        """σ_g²: mean over clients of ‖∇_y g_i(x, y) − ∇_y g(x, y)‖², counted client by client."""
        total = 0.0
        for start in range(0, self.num_clients, 10_000):
            clients = np.arange(start, min(start + 10_000, self.num_clients))
            A, B, c = (torch.from_numpy(part) for part in lower_deviations(self, clients))
            total += float((A @ y - B @ self.s(x) - c).square().sum())
        return total / self.num_clients

    def metrics(self, x: Tensor, y: Tensor, test: Batch | None) -> dict[str, float]:
        y_star = self.y_star(x)
        gradient, error = self.surrogate(x, y_star), y - y_star
        return {
            "lower_loss": float(self.lower(x, y, self.mean_lower)),
            "upper_loss": float(self.upper(x, y, self.mean_upper)),
            "test_loss": float(self.upper(x, y_star, self.mean_upper)),
            "hypergradient_norm_sq": float(gradient @ gradient),
            "lower_error_sq": float(error @ error),
        }


def product(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Row by row, so that the bits of a row don't depend on how many there are."""
    return (matrices * vectors.unsqueeze(-2)).sum(-1)


@dataclass(frozen=True)
class QuadraticClients:
    """Samples of A_i, B_i, c_i (training split) and of t_i, u_i (validation split), made on demand."""

    problem: QuadraticProblem

    @property
    def num_clients(self) -> int:
        return self.problem.num_clients

    @property
    def num_samples(self) -> None:
        return None

    def samples(self, clients: Clients, draw: Draw) -> int:
        """All that a client has counts as one sample: it is an expectation."""
        return (draw.size or 1) * draw.total(clients)

    def draw(self, clients: Clients, seeds: Seeds, draw: Draw, device: torch.device) -> LowerBatch | UpperBatch:
        batches = lower_batches if draw.split == "train" else upper_batches
        clients = np.repeat(clients, draw.height)
        seeds = fold(seeds[:, None], np.arange(draw.height)).reshape(-1)
        batch = batches(self.problem, clients, seeds, draw.size)
        shape = (-1,) if draw.count is None else (-1, draw.height)
        return type(batch)(*(field.unflatten(0, shape).to(device) for field in batch))


def lower_batches(problem: QuadraticProblem, clients: Clients, seeds: Seeds, size: int | None) -> LowerBatch:
    """Means over `size` samples of A_i + E, B_i + F, c_i + e, or over all there are."""
    s, (p, q) = problem.settings, (problem.settings.upper_dim, problem.settings.lower_dim)
    A, B, c = lower_deviations(problem, clients)
    E = _sphere(fold(seeds, 0), size, (q, q), s.hessian_noise, symmetric=True)
    F = _sphere(fold(seeds, 1), size, (q, p), s.jacobian_noise)
    e = _sphere(fold(seeds, 2), size, (q,), s.gradient_noise)
    deviations = LowerBatch(*map(torch.from_numpy, (A + E, B + F, c + e)))
    return LowerBatch(*(mean + part for mean, part in zip(problem.mean_lower, deviations, strict=True)))


def lower_deviations(problem: QuadraticProblem, clients: Clients) -> tuple[Floats, ...]:
    """A_i − Ā, B_i − B̄, c_i − c̄."""
    return tuple(part[clients] for part in problem.deviations[:3]) if problem.stored else made_lower(problem, clients)


def upper_deviations(problem: QuadraticProblem, clients: Clients) -> tuple[Floats, ...]:
    """t_i − t̄, u_i − ū."""
    return tuple(part[clients] for part in problem.deviations[3:]) if problem.stored else made_upper(problem, clients)


def made_lower(problem: QuadraticProblem, clients: Clients) -> tuple[Floats, ...]:
    s, (p, q) = problem.settings, (problem.settings.upper_dim, problem.settings.lower_dim)
    pair, sign = _pairs(problem, clients)
    A = _sphere(fold(pair, 0), 1, (q, q), s.hessian_spread, symmetric=True)
    B = _sphere(fold(pair, 1), 1, (q, p), 0.2 * s.heterogeneity * s.smoothness)
    c = _sphere(fold(pair, 2), 1, (q,), s.heterogeneity)
    return sign[:, None, None] * A, sign[:, None, None] * B, sign[:, None] * c


def upper_batches(problem: QuadraticProblem, clients: Clients, seeds: Seeds, size: int | None) -> UpperBatch:
    """Means over `size` samples of t_i + e, ρu_i + e' with ‖(e, e')‖ = σ_f."""
    s, (p, q) = problem.settings, (problem.settings.upper_dim, problem.settings.lower_dim)
    t_bar, u_bar = problem.mean_upper.t.numpy(), problem.mean_upper.u.numpy() / s.upper_curvature
    t, u = (mean + part for mean, part in zip((t_bar, u_bar), upper_deviations(problem, clients), strict=True))
    r = 0.5 * (t**2).sum(1) + 0.5 * s.upper_curvature * (u**2).sum(1)
    e = _sphere(fold(seeds, 3), size, (q + p,), s.gradient_noise)
    return UpperBatch(*map(torch.from_numpy, (t + e[:, :q], s.upper_curvature * u + e[:, q:], r)))


def made_upper(problem: QuadraticProblem, clients: Clients) -> tuple[Floats, ...]:
    s, (pair, sign) = problem.settings, _pairs(problem, clients)
    t = _sphere(fold(pair, 3), 1, (s.lower_dim,), s.heterogeneity)
    return sign[:, None] * t, sign[:, None] * _sphere(fold(pair, 4), 1, (s.upper_dim,), 0.5 * s.heterogeneity)


def _pairs(problem: QuadraticProblem, clients: Clients) -> tuple[Seeds, Floats]:
    """The seed of each client's pair, and its sign; with an odd number of clients the last has sign 0."""
    sign = np.where(clients % 2 == 0, 1.0, -1.0)
    single = (clients == problem.num_clients - 1) & (problem.num_clients % 2 == 1)
    return fold(problem.client_seed, clients // 2), np.where(single, 0.0, sign)


def _sphere(seeds: Seeds, count: int | None, shape: tuple[int, ...], radius: float, symmetric: bool = False) -> Floats:
    """For each seed the mean of `count` arrays uniform on the sphere of that Frobenius radius, or the expectation."""
    if radius == 0 or count is None:
        return np.zeros((len(seeds), *shape))
    z = normals(seeds, count * int(np.prod(shape))).reshape(len(seeds), count, *shape)
    if symmetric:
        z = z + z.swapaxes(-1, -2)
    axes = tuple(range(2, z.ndim))
    return (z * (radius / np.sqrt((z**2).sum(axes, keepdims=True)))).mean(1)
