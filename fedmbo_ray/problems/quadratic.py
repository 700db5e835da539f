"""Heterogeneous quadratic clients with closed-form y*(x), Φ(x) and ∇Φ(x): the test-bed of the theory."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor

from fedmbo_ray.core.cards import OURS, Card
from fedmbo_ray.core.memory import require_memory
from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.core.settings import Count, NonNegative, Positive, settings
from fedmbo_ray.data.array_clients import Federated
from fedmbo_ray.data.batches import Batch
from fedmbo_ray.problems.base import Capabilities, Task
from fedmbo_ray.problems.population import LowerBatch, Population, UpperBatch


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
        p, q = self.upper_dim, self.lower_dim
        require_memory(8 * (p * p + p * q + q * q), "upper_dim" if p > q else "lower_dim")
        population = Population(self, seed if self.seed is None else self.seed, num_clients)
        return Task(QuadraticProblem(self, population), population, None)


@dataclass(frozen=True)
class QuadraticProblem:
    """The losses, and everything about them in closed form (float64)."""

    settings: Quadratic
    population: Population

    capabilities: ClassVar[Capabilities] = Capabilities(stacks=True, stacks_all=True, personal=True)

    @property
    def mean_lower(self) -> LowerBatch:
        """Ā, B̄, c̄."""
        return self.population.mean_lower

    @property
    def mean_upper(self) -> UpperBatch:
        """t̄, ρū and the mean of ½‖t_i‖² + (ρ/2)‖u_i‖²."""
        return self.population.mean_upper

    def init(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """x⁰ at distance √p from the minimiser of the convex case, y⁰ = y*(x⁰)."""
        A, B, c = self.mean_lower
        rng = rng if self.settings.seed is None else stream(self.population.seed, "quadratic", "start")
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

    @cached_property
    def personal(self) -> "PersonalQuadratic":
        """The closed forms if every client has a lower problem of its own."""
        return PersonalQuadratic(self)

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
        for start in range(0, self.population.num_clients, 10_000):
            clients = np.arange(start, min(start + 10_000, self.population.num_clients))
            A, B, c = (torch.from_numpy(part) for part in self.population.lower_deviations(clients))
            total += float((A @ y - B @ self.s(x) - c).square().sum())
        return total / self.population.num_clients

    def metrics(self, x: Tensor, y: Tensor, test: Batch | None) -> dict[str, float]:
        if y.dim() == 2:
            return self.personal.metrics(x, y)
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
class PersonalQuadratic:
    """The same clients with a lower problem each: Φ(x) = mean_i f_i(x, y_i*(x)), y_i*(x) = A_i⁻¹(B_i s(x) + c_i)."""

    problem: QuadraticProblem

    @cached_property
    def lower(self) -> LowerBatch:
        """A_i, B_i, c_i of all clients."""
        clients = np.arange(self.problem.population.num_clients)
        return self.problem.population.lower_batches(clients, draw_seeds(stream(0), len(clients)), None)

    @cached_property
    def upper(self) -> UpperBatch:
        """t_i, ρu_i, r_i of all clients."""
        clients = np.arange(self.problem.population.num_clients)
        return self.problem.population.upper_batches(clients, draw_seeds(stream(0), len(clients)), None)

    def y_star(self, x: Tensor) -> Tensor:
        """y_i*(x) of all clients, of shape (m, q)."""
        A, B, c = self.lower
        return torch.linalg.solve(A, B @ self.problem.s(x) + c)

    def hypergradient(self, x: Tensor) -> Tensor:
        """∇Φ(x) = mean_i [∇_x f_i + (1 + a cos x) ∘ B_i' A_i⁻¹ ∇_y f_i]."""
        (A, B, _), s = self.lower, self.problem.settings
        v = torch.linalg.solve(A, self.y_star(x) - self.upper.t)
        implicit = (1 + s.nonconvexity * torch.cos(x)) * (v.unsqueeze(-2) @ B).squeeze(-2).mean(0)
        return s.upper_curvature * x - self.upper.u.mean(0) + implicit

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, float]:
        y_star, gradient = self.y_star(x), self.hypergradient(x)
        return {
            "lower_loss": float(self.problem.lower(x, y, self.lower).mean()),
            "upper_loss": float(self.problem.upper(x, y, self.upper).mean()),
            "test_loss": float(self.problem.upper(x, y_star, self.upper).mean()),
            "hypergradient_norm_sq": float(gradient @ gradient),
            "lower_error_sq": float((y - y_star).square().sum(-1).mean()),
        }
