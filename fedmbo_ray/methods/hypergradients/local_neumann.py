"""Fully local hypergradients, as LFedNest has them: one communication, and a bias that no N removes."""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedmbo_ray.core.cards import CODE, Card, Cost
from fedmbo_ray.core.settings import Count, settings
from fedmbo_ray.data.batches import Draw, Integers, Samples, unstack
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.methods.base import State
from fedmbo_ray.problems.base import Problem
from fedmbo_ray.problems.oracles import grad_x_through, grad_y_upper, hessian_yy

NeumannForm = Literal["sum", "term"]
LocalDraws = tuple[Samples, Samples, Tensor]  # of several local hypergradients: validation batches, training ones, J
LocalSamples = tuple[Samples, list[Samples], Tensor]  # of one of them: a validation batch, N for training, J


def local_hypergradient(
    problem: Problem, samples: LocalSamples, x: Tensor, y: Tensor, smoothness: Tensor, series: NeumannForm
) -> Tensor:
    """∇_x f_i − ∇²_xy g_i v_i with client i's own v_i ≈ [∇²_yy g_i]⁻¹ ∇_y f_i.

    sum:  v_i = (1/ℓ) Σ_{j<N} (I − ∇²_yy g_i/ℓ)^j ∇_y f_i
    term: v_i = (N/ℓ) (I − ∇²_yy g_i/ℓ)^J ∇_y f_i with J uniform on {0, …, N−1}, the same in expectation
    """
    validation, train, J = samples
    p = grad_y_upper(problem, validation, x, y) / smoothness
    v = p if series == "sum" else len(train) * p
    for j, batch in enumerate(train[1:], 1):
        if series == "sum":
            p = p - hessian_yy(problem, batch, x, y, p) / smoothness
            v = v + p
        else:
            v = torch.where(j <= J, v - hessian_yy(problem, batch, x, y, v) / smoothness, v)
    return grad_x_through(problem, (validation, train[0]), x, y, v)


def local_draws(terms: int, batch_size: int, count: int = 1, more: int = 0) -> tuple[Draw | Integers, ...]:
    """What `count` local hypergradients of N terms need, with `more` training batches for each."""
    validation, train = Draw("validation", batch_size, count), Draw("train", batch_size, count * (terms + more))
    return validation, train, Integers(terms, count)


def local_samples(batches: LocalDraws) -> Iterator[LocalSamples]:
    """The samples of one local hypergradient after the other."""
    validations, trains, depths = list(unstack(batches[0])), list(unstack(batches[1])), list(unstack(batches[2]))
    width = len(trains) // len(depths)
    for k, (validation, J) in enumerate(zip(validations, depths, strict=True)):
        yield validation, trains[k * width : (k + 1) * width], J


def one_hypergradient(
    problem: Problem, batches: LocalDraws, x: Tensor, y: Tensor, smoothness: Tensor, series: NeumannForm
) -> Tensor:
    return local_hypergradient(problem, next(local_samples(batches)), x, y, smoothness, series)


@settings
class LocalNeumann:
    """h = mean_{i∈C} [∇_x f_i − ∇²_xy g_i v_i], v_i ≈ [∇²_yy g_i]⁻¹ ∇_y f_i of each client by itself.

    Biased under heterogeneity by mean_i J_i H_i⁻¹ ∇_y f_i − J̄ H̄⁻¹ ∇_y f̄, for every N.
    """

    card: ClassVar[Card] = Card(
        "Tarzanagh et al. 2022 (LFedNest)", CODE, Cost("1", "p + q + 1", "p"), heterogeneity="no"
    )

    terms: Count  # N
    batch_size: Count
    series: NeumannForm = "sum"

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor, kept: State) -> tuple[Tensor, State]:
        kernel = partial(one_hypergradient, series=self.series)
        draw = local_draws(self.terms, self.batch_size)
        return clients.mean(kernel, clients.sample(), x, y, smoothness, draw=draw), kept
