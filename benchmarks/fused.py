"""The same mathematics without a frame, written for speed: what one core can do.

All clients of a communication are one batch, the images lie in memory as standardized float32, nothing is counted,
checked or general. `FusedFedMBO` leaves derivatives to torch's autograd, `DerivedFedMBO` has them written out by hand.
They draw what the frame draws, so that their results agree with the frame's up to rounding.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedmbo_ray.core.rng import draw_seeds, fold, indices, stream
from fedmbo_ray.data.array_clients import Rows

SPLITS = ("validation", "train")


@dataclass
class Model:
    """An MLP of one hidden layer on images in memory; x = (W₁, b₁) and y = (W₂, b₂)."""

    images: Tensor  # (rows, inputs)
    targets: Tensor
    splits: dict[Any, Rows]
    width: int
    classes: int

    def batch(self, split: str, clients: Any, seeds: Any, size: int) -> tuple[Tensor, Tensor]:
        rows = self.splits[split]
        chosen = rows.order[rows.start[clients][:, None] + indices(seeds, size, rows.size[clients])]
        chosen = torch.from_numpy(chosen.reshape(-1))
        return self.images.index_select(0, chosen), self.targets.index_select(0, chosen)

    def layers(self, x: Tensor) -> tuple[Tensor, Tensor]:
        size = self.width * self.images.shape[1]
        return x[:size].view(self.width, -1), x[size:]

    def head(self, y: Tensor) -> tuple[Tensor, Tensor]:
        size = self.width * self.classes
        return y[..., :size].unflatten(-1, (self.classes, self.width)), y[..., size:].unsqueeze(-2)

    def features(self, x: Tensor, images: Tensor) -> Tensor:
        W, b = self.layers(x)
        return torch.addmm(b, images, W.T).relu_()

    def residuals(self, y: Tensor, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """softmax − one-hot, and the softmax."""
        W, b = self.head(y)
        P = torch.addmm(b[0], features, W.T).softmax(1)
        return P.scatter_add(1, targets.unsqueeze(1), P.new_full((len(P), 1), -1.0)), P


@dataclass
class FusedFedMBO:
    """FedMBO with minibatch SGD below and PHE above, at constant step sizes."""

    model: Model
    seed: int
    m: int
    n: int
    S: int
    T: int
    N: int
    alpha: float
    beta: float
    ell: float
    regularization: float

    def round(self, k: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        rng, n = stream(self.seed, "round", k), self.n
        for _ in range(self.T):
            features, targets = self.seen(rng, "train", n, x)
            y = y - self.beta * self.grad_y_lower(y, features, targets)
        cohort, depth = rng.integers(self.m, size=n), rng.integers(self.N, size=n)
        images, targets = self.model.batch("validation", cohort, draw_seeds(rng, n), self.S)
        p = self.grads_y_upper(y, self.model.features(x, images), targets).mul_(self.N / self.ell)
        for l in range(1, self.N):
            active = torch.from_numpy(np.flatnonzero(depth >= l))
            if not len(active):
                break
            features, targets = self.seen(rng, "train", len(active), x)
            p[active] -= self.products(y, p[active], features, targets).mul_(1 / self.ell)
        cohort, seeds = rng.integers(self.m, size=n), draw_seeds(rng, n)
        parts = [self.model.batch(split, cohort, fold(seeds, i), self.S) for i, split in enumerate(SPLITS)]
        return x - self.alpha * self.through(x, y, p, *parts), y

    def seen(self, rng: Any, split: str, count: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features and targets of a fresh cohort's batches."""
        images, targets = self.model.batch(split, rng.integers(self.m, size=count), draw_seeds(rng, count), self.S)
        return self.model.features(x, images), targets

    def loss(self, y: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        """The sum over slots of mean losses, for y shared or one per slot."""
        W, b = self.model.head(y)
        if y.dim() == 1:
            logits = torch.addmm(b[0], features, W.T)
        else:
            logits = torch.baddbmm(b, features.view(len(y), self.S, -1), W.mT).flatten(0, 1)
        return cross_entropy(logits, targets, reduction="sum") / self.S

    def grad_y_lower(self, y: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        """The mean over slots."""
        y = y.detach().requires_grad_()
        loss = self.loss(y, features, targets) / self.n + 0.5 * self.regularization * y.square().sum()
        return torch.autograd.grad(loss, y)[0]

    def grads_y_upper(self, y: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        """Of every slot."""
        ys = y.expand(self.n, -1).detach().requires_grad_()
        return torch.autograd.grad(self.loss(ys, features, targets), ys)[0]

    def products(self, y: Tensor, v: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        """∇²_yy g·v of every slot."""
        ys = y.expand(len(v), -1).detach().requires_grad_()
        loss = self.loss(ys, features, targets) + 0.5 * self.regularization * ys.square().sum()
        (gradients,) = torch.autograd.grad(loss, ys, create_graph=True)
        return torch.autograd.grad((gradients * v).sum(), ys)[0]

    def through(self, x: Tensor, y: Tensor, p: Tensor, validation: Any, train: Any) -> Tensor:
        """The mean over slots of ∇_x f − ∇²_xy g·p_i."""
        x, ys = x.detach().requires_grad_(), y.expand(self.n, -1).detach().requires_grad_()
        W, b = self.model.layers(x)
        above, below = (torch.addmm(b, images, W.T).relu() for images, _ in (validation, train))
        (gradients,) = torch.autograd.grad(self.loss(ys, below, train[1]), ys, create_graph=True)
        value = self.loss(y, above, validation[1]) - (gradients * p).sum()
        return torch.autograd.grad(value, x)[0] / self.n


class DerivedFedMBO(FusedFedMBO):
    """The same with the classifier's derivatives written out: hardly faster without leaving torch."""

    def grad_y_lower(self, y: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        D, _ = self.model.residuals(y, features, targets)
        G = torch.cat([(D.T @ features).view(-1), D.sum(0)]).div_(self.n * self.S)
        return G.add_(y, alpha=self.regularization)

    def grads_y_upper(self, y: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        return self.stacked(features, self.model.residuals(y, features, targets)[0])

    def products(self, y: Tensor, v: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        _, P = self.model.residuals(y, features, targets)
        return self.stacked(features, self.curved(P, v, features)).add_(v, alpha=self.regularization)

    def stacked(self, features: Tensor, D: Tensor) -> Tensor:
        """Of every slot, what D pulls back to y."""
        features, D = features.view(-1, self.S, self.model.width), D.view(-1, self.S, self.model.classes)
        return torch.cat([(D.mT @ features).flatten(1), D.sum(1)], 1).div_(self.S)

    def curved(self, P: Tensor, v: Tensor, features: Tensor) -> Tensor:
        """(diag P − PPᵀ)u of every sample, u = its logits for v."""
        V, c = self.model.head(v)
        Pu = P * torch.baddbmm(c, features.view(len(v), self.S, -1), V.mT).flatten(0, 1)
        return Pu.sub_(P * Pu.sum(1, keepdim=True))

    def through(self, x: Tensor, y: Tensor, p: Tensor, validation: Any, train: Any) -> Tensor:
        model, half = self.model, self.n * self.S
        images, targets = (torch.cat(both) for both in zip(validation, train, strict=True))
        features = model.features(x, images)
        (W, _), (V, _) = model.head(y), model.head(p)
        D, P = model.residuals(y, features, targets)
        R = self.curved(P[half:], p, features[half:])
        below = torch.baddbmm((R @ W).view(self.n, self.S, -1), D[half:].view(self.n, self.S, -1), V).flatten(0, 1)
        pulled = torch.cat([D[:half] @ W, below.neg_()]).mul_(features > 0).div_(half)
        return torch.cat([(pulled.T @ images).view(-1), pulled.sum(0)])


class Products(FusedFedMBO):
    """Nothing but the products of a round with the hidden layer's weights: what no implementation can do without."""

    def round(self, k: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        rng, (W, _) = stream(self.seed, "round", k), self.model.layers(x)
        rows, features = self.model.images, torch.ones(2 * self.n * self.S, self.model.width)
        depth = rng.integers(self.N, size=self.n)
        slots = [self.n] * self.T + [self.n] + [int((depth >= l).sum()) for l in range(1, self.N)] + [2 * self.n]
        for count in slots:
            torch.mm(rows[: count * self.S], W.T)
        torch.mm(features.T, rows[: len(features)])
        return x, y


@dataclass
class FusedFedSGD:
    """One step of gradient descent on all weights, from the mean gradient of n clients."""

    model: Model
    seed: int
    m: int
    n: int
    S: int
    step_size: float
    regularization: float

    def round(self, k: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        rng, model, n, S = stream(self.seed, "round", k), self.model, self.n, self.S
        images, targets = model.batch("train", rng.integers(self.m, size=n), draw_seeds(rng, n), S)
        features = model.features(x, images)
        D, _ = model.residuals(y, features, targets)
        D.div_(n * S)
        G_y = torch.cat([(D.T @ features).view(-1), D.sum(0)]).add_(y, alpha=self.regularization)
        pulled = (D @ model.head(y)[0]).mul_(features > 0)
        G_x = torch.cat([(pulled.T @ images).view(-1), pulled.sum(0)])
        return x.sub(G_x, alpha=self.step_size), y.sub(G_y, alpha=self.step_size)
