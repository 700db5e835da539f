"""The expectations of a run's figures, for those configs that have a closed form."""

from collections.abc import Iterator
from functools import reduce
from itertools import count

import numpy as np

from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.rng import stream
from fedmbo_ray.federation.rounds import Round
from fedmbo_ray.methods.algorithms.double_loop import DoubleLoop
from fedmbo_ray.methods.algorithms.probes import HypergradientDraws, LowerDraws
from fedmbo_ray.methods.algorithms.soba import DSOBA
from fedmbo_ray.methods.base import Algorithm, LowerSolver
from fedmbo_ray.methods.curvature import Given
from fedmbo_ray.methods.hypergradients.phe import PHE
from fedmbo_ray.methods.hypergradients.phe_sum import PHESum
from fedmbo_ray.methods.lower.minibatch_sgd import MinibatchSGD
from fedmbo_ray.methods.outer import Plain
from fedmbo_ray.methods.schedules import Schedule
from fedmbo_ray.problems.quadratic import Quadratic, QuadraticProblem
from fedmbo_ray.theory.recursion import Map, Moments, Neumann


class NotPredicted(Exception):
    """There is no closed form for a config."""


def moments_of(config: RunConfig) -> Moments:
    if not isinstance(config.problem, Quadratic) or config.problem.nonconvexity:
        raise NotPredicted("the problem is not a quadratic with s(x) = x")
    if config.problem.seed is None or config.clients.availability is not None:
        raise NotPredicted("problem.seed must be given, and clients always available")
    problem = config.problem.build(config.seed, config.clients.num_clients).problem
    assert isinstance(problem, QuadraticProblem)
    return Moments(problem, config.clients.cohort_size, config.clients.replace)


def predicted(config: RunConfig) -> Iterator[dict[str, float]]:
    """The expectations of a run's figures after 0, 1, 2, … rounds; raises NotPredicted."""
    algorithm, moments = config.algorithm, moments_of(config)
    if isinstance(algorithm, HypergradientDraws | LowerDraws):
        figures = draws(algorithm, moments, config)
        while True:
            yield figures
    step, w, g = round_of(algorithm, moments, config), moments.start(), moments.hypergradient()
    M, norm, total = np.kron(w, w), (g.T @ g).reshape(-1), 0.0
    for k in count():
        with np.errstate(all="ignore"):  # steps that are too large make it infinite
            now = float(norm @ M)
            M = step.square @ M
        means = {"mean_hypergradient_norm_sq": total / k} if k else {}
        yield {"hypergradient_norm_sq": now, **means}
        total += now


def constants(config: RunConfig) -> dict[str, float]:
    """What the paper's bounds are made of, at the starting point; raises NotPredicted."""
    moments = moments_of(config)
    problem, settings = moments.problem, moments.problem.settings
    x, y = problem.init(stream(problem.population.seed, "start"))
    lipschitz, mu, ell = float((y - problem.mean_upper.t).norm()), settings.strong_convexity, settings.smoothness
    noise, hessian = settings.gradient_noise**2, settings.hessian_noise**2
    exact = {f"hypergradient_{i}": value for i, value in enumerate(problem.surrogate(x, y).tolist())}
    return {
        "condition": settings.smoothness / settings.strong_convexity,  # κ
        "upper_gradient_norm": lipschitz,  # stands for ℓ_{f,0}
        "upper_smoothness": max(1.0, settings.upper_curvature),  # ℓ_{f,1}
        "sample_variance": problem.sample_variance(x, y),  # σ_{g,1}²
        "client_variance": problem.client_variance(x, y),  # σ_g²
        # σ̃_f², the paper's bound on the variance of one column: it has no N
        "column_bound": noise + 3 / mu**2 * ((noise + lipschitz**2) * (hessian + 2 * ell**2) + noise * ell**2),
        **exact,
    }


def draws(algorithm: HypergradientDraws | LowerDraws, moments: Moments, config: RunConfig) -> dict[str, float]:
    w, (x, y) = moments.start(), (moments.places["x"], moments.places["y"])
    if isinstance(algorithm, LowerDraws):
        made = lower_of(algorithm.lower, moments, config)
        second = (made.square @ np.kron(w, w)).reshape(len(w), len(w))[y, y]
        return {"lower_move_sq": float(np.trace(second) - 2 * (made.mean @ w)[y] @ w[y] + w[y] @ w[y])}
    made = hypergradient_of(algorithm, moments, keep=0.0, step_size=-1.0)
    second, h = (made.square @ np.kron(w, w)).reshape(len(w), len(w))[x, x], (made.mean @ w)[x]
    return {
        "estimate_variance": float(np.trace(second) - h @ h),
        **{f"estimate_{i}": float(v) for i, v in enumerate(h)},
    }


def round_of(algorithm: Algorithm, moments: Moments, config: RunConfig) -> Map:
    """One round of a method."""
    if type(algorithm) is DSOBA:
        steps = (algorithm.step_size, algorithm.lower_step_size, algorithm.system_step_size)
        return moments.soba_step([constant(each, config) for each in steps], algorithm.batch_size)
    if not isinstance(algorithm, DoubleLoop) or not isinstance(algorithm.outer, Plain) or algorithm.cohort != "fresh":
        raise NotPredicted(f"{type(algorithm).__name__} is not a double loop with plain steps and fresh cohorts")
    above = hypergradient_of(algorithm, moments, keep=1.0, step_size=constant(algorithm.step_size, config))
    return lower_of(algorithm.lower, moments, config).then(above)


def lower_of(lower: LowerSolver, moments: Moments, config: RunConfig) -> Map:
    if not isinstance(lower, MinibatchSGD):
        raise NotPredicted(f"no closed form for {type(lower).__name__}")
    step = moments.lower_step(constant(lower.step_size, config), lower.batch_size)
    return reduce(Map.then, [step] * lower.steps)


def hypergradient_of(
    algorithm: HypergradientDraws | DoubleLoop, moments: Moments, keep: float, step_size: float
) -> Map:
    estimator, smoothness = algorithm.hypergradient, algorithm.smoothness
    if not isinstance(estimator, Neumann) or not isinstance(smoothness, Given):
        raise NotPredicted(f"no closed form for {type(estimator).__name__} with {smoothness}")
    if not moments.replace and isinstance(estimator, PHE | PHESum):
        raise NotPredicted("columns that are sampled without replacement are not independent")
    return moments.estimate(estimator, smoothness.value, keep, step_size)


def constant(schedule: Schedule, config: RunConfig) -> float:
    """A step size that is the same in every round."""
    n, K = config.clients.cohort_size, config.rounds
    values = {schedule(Round(k, K, n)) for k in (0, (K or 2) - 1)}
    if len(values) > 1:
        raise NotPredicted("step sizes change from round to round")
    return float(values.pop())
