"""What theory predicts on the quadratic: exact first and second moments of an algorithm's state, round by round.

With s(x) = x every communication maps w = (x, y, 1, u, v) linearly, by a random matrix G that is the mean of
independent ones, one per slot (u and v are what an estimator, or D-SOBA, carries along). So M = E[ww'] follows a linear
recursion, M ← Ḡ M Ḡ' + (1/n) Σ_j D_j M D_j', in which the D_j are what clients and samples deviate by. Nothing is
linearised and nothing is sampled: what is measured must agree with it within its standard error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmbo_ray.core.rng import stream
from fedmbo_ray.methods.hypergradients.ihgp import IHGP
from fedmbo_ray.methods.hypergradients.ihgp_sum import IHGPSum
from fedmbo_ray.methods.hypergradients.phe import PHE
from fedmbo_ray.methods.hypergradients.phe_sum import PHESum
from fedmbo_ray.problems.quadratic import QuadraticProblem

Matrix = NDArray[np.floating]
Neumann = PHE | PHESum | IHGP | IHGPSum  # the estimators with a closed form


class Map(NamedTuple):
    """The law of a random matrix G: E[G], and the matrix that takes vec(M) to vec(E[G M G'])."""

    mean: Matrix
    square: Matrix

    def then(self, after: "Map") -> "Map":
        return Map(after.mean @ self.mean, after.square @ self.square)

    def averaged(self, count: int) -> "Map":
        """Of the mean of `count` independent ones."""
        squared: Matrix = np.kron(self.mean, self.mean)
        return Map(self.mean, squared + (self.square - squared) / count)


def fixed(matrix: Matrix) -> Map:
    return Map(matrix, np.kron(matrix, matrix))


def either(maps: list[Map]) -> Map:
    """One of them, all equally likely."""
    return Map(*(np.mean(parts, axis=0) for parts in zip(*maps, strict=True)))


def powers(step: Map, count: int) -> list[Map]:
    """The identity, the step once, twice and so on: `count` of them."""
    found = [fixed(np.eye(len(step.mean)))]
    while len(found) < count:
        found.append(found[-1].then(step))
    return found


class Client(NamedTuple):
    """What a client's losses are made of, or by how much it, or a sample, deviates."""

    A: Matrix
    B: Matrix
    c: Matrix
    t: Matrix
    u: Matrix  # ρu


@dataclass(frozen=True)
class Moments:
    """How communications with n of a quadratic's clients change the moments of w."""

    problem: QuadraticProblem
    cohort_size: int  # n
    replace: bool

    @property
    def p(self) -> int:
        return self.problem.settings.upper_dim

    @property
    def q(self) -> int:
        return self.problem.settings.lower_dim

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where x, y, 1, u and v stand in w."""
        sizes = {"x": self.p, "y": self.q, "one": 1, "u": self.q, "v": self.q}
        ends = np.cumsum(list(sizes.values())).tolist()
        return {name: slice(end - sizes[name], end) for name, end in zip(sizes, ends, strict=True)}

    def matrix(self, **blocks: Matrix) -> Matrix:
        """The identity, with blocks (`y_x`: from x to y) replaced."""
        G = np.eye(self.p + 3 * self.q + 1)
        for name, block in blocks.items():
            to, of = (self.places[each] for each in name.split("_"))
            G[to, of] = block.reshape(G[to, of].shape)
        return G

    def start(self) -> Matrix:
        """w = (x⁰, y⁰, 1, 0, 0)."""
        x, y = self.problem.init(stream(self.problem.population.seed, "start"))
        return np.concatenate([x.numpy(), y.numpy(), np.ones(1), np.zeros(2 * self.q)])

    @cached_property
    def mean(self) -> Client:
        A, B, c = self.problem.mean_lower
        t, u, _ = self.problem.mean_upper
        return Client(*(part.numpy() for part in (A, B, c, t, u)))

    @cached_property
    def nothing(self) -> Client:
        return Client(*map(np.zeros_like, self.mean))

    @cached_property
    def clients(self) -> list[Client]:
        """What each deviates by."""
        *lower, u = self.problem.population.deviations
        return [Client(*parts) for parts in zip(*lower, self.problem.settings.upper_curvature * u, strict=True)]

    @cached_property
    def samples(self) -> list[Client]:
        """Deviations whose squares add up to those of one sample of any client: the noise has no direction."""
        s, (p, q) = self.problem.settings, (self.p, self.q)
        lower = {
            "A": s.hessian_noise * _symmetric_basis(q) / (q * (q + 1) / 2) ** 0.5,
            "B": s.jacobian_noise * np.eye(q * p).reshape(-1, q, p) / (q * p) ** 0.5,
            "c": s.gradient_noise * np.eye(q) / q**0.5,
        }
        upper = s.gradient_noise * np.eye(q + p) / (q + p) ** 0.5
        return [self.nothing._replace(**{name: each}) for name, basis in lower.items() for each in basis] + [
            self.nothing._replace(t=each[:q], u=each[q:]) for each in upper
        ]

    def communication(self, linear: Callable[[Client], Matrix], slots: int, batch_size: int) -> Map:
        """The mean over `slots` clients of w ↦ linear(client)·w; `linear` is so, up to a constant, in the client."""
        mean, origin, m = linear(self.mean), linear(self.nothing), len(self.clients)
        repeated = 1.0 if self.replace or slots == 1 else (m - slots) / (m - 1)
        spread = repeated * _sum_of_squares([linear(each) - origin for each in self.clients]) / m
        noise = _sum_of_squares([linear(each) - origin for each in self.samples]) / batch_size
        return Map(mean, np.kron(mean, mean) + (spread + noise) / slots)

    def lower_step(self, step_size: float, batch_size: int) -> Map:
        """y ← y − β(Ay − Bx − c)."""

        def linear(client: Client) -> Matrix:
            y_y = np.eye(self.q) - step_size * client.A
            return self.matrix(y_y=y_y, y_x=step_size * client.B, y_one=step_size * client.c)

        return self.communication(linear, self.cohort_size, batch_size)

    def estimate(self, estimator: Neumann, smoothness: float, keep: float, step_size: float) -> Map:
        """x ← keep·x − step_size·h."""
        I, batch_size, N, ell = np.eye(self.q), estimator.batch_size, estimator.terms, smoothness
        whole, columns = isinstance(estimator, PHESum | IHGPSum), isinstance(estimator, PHE | PHESum)
        scale, last = (1 / ell, "v") if whole else (N / ell, "u")
        slots, rho = 1 if columns else self.cohort_size, self.problem.settings.upper_curvature

        def gradient(client: Client) -> Matrix:  # u ← scale·(y − t)
            return self.matrix(u_y=scale * I, u_one=-scale * client.t, u_u=0 * I)

        def neumann(client: Client) -> Matrix:  # u ← u − Au/ℓ
            return self.matrix(u_u=I - client.A / ell)

        def through(client: Client) -> Matrix:  # h = ρx − ρu_i + B'u
            above = {"x_x": (keep - step_size * rho) * np.eye(self.p), "x_one": step_size * client.u}
            return self.matrix(**above, **{f"x_{last}": -step_size * client.B.T})

        first, step, end = (self.communication(each, slots, batch_size) for each in (gradient, neumann, through))
        if whole:
            first, step = first.then(fixed(self.matrix(v_u=I, v_v=0 * I))), step.then(fixed(self.matrix(v_u=I)))
        terms = powers(step, N)
        made = first.then(terms[-1] if whole else either(terms)).then(end)
        return made.averaged(self.cohort_size) if columns else made

    def soba_step(self, step_sizes: Sequence[float], batch_size: int) -> Map:
        """x ← x − α(ρx − ρu_i + B'v), y ← y − β(Ay − Bx − c), v ← v − ρ(Av − y + t), all at once."""
        (alpha, beta, rho), I, curvature = step_sizes, np.eye(self.q), self.problem.settings.upper_curvature

        def linear(client: Client) -> Matrix:
            return self.matrix(
                x_x=(1 - alpha * curvature) * np.eye(self.p), x_one=alpha * client.u, x_v=-alpha * client.B.T,
                y_y=I - beta * client.A, y_x=beta * client.B, y_one=beta * client.c,
                v_v=I - rho * client.A, v_y=rho * I, v_one=-rho * client.t,
            )  # fmt: skip

        return self.communication(linear, self.cohort_size, batch_size)

    def hypergradient(self) -> Matrix:
        """∇Φ as a matrix on w."""
        A, B, c, t, u = self.mean
        v_x = np.linalg.solve(A, np.linalg.solve(A, B))
        v_one = np.linalg.solve(A, np.linalg.solve(A, c) - t)
        rows = np.zeros((self.p, self.p + 3 * self.q + 1))
        rows[:, self.places["x"]] = self.problem.settings.upper_curvature * np.eye(self.p) + B.T @ v_x
        rows[:, self.places["one"]] = (B.T @ v_one - u)[:, None]
        return rows


def _sum_of_squares(matrices: list[Matrix]) -> Matrix:
    """Σ_j D_j ⊗ D_j."""
    D = np.stack(matrices)
    return np.einsum("jab,jcd->acbd", D, D, optimize=True).reshape(D.shape[1] ** 2, D.shape[2] ** 2)


def _symmetric_basis(size: int) -> Matrix:
    """Orthonormal among the symmetric matrices."""
    basis = []
    for i in range(size):
        for j in range(i + 1):
            each = np.zeros((size, size))
            each[i, j] = each[j, i] = 1.0 if i == j else 0.5**0.5
            basis.append(each)
    return np.stack(basis)
