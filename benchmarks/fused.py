"""The same mathematics without a frame, written for speed: what one core can do.

All clients of a communication are one batch, the classifier's derivatives are written out, the images lie in memory
as standardized float32, nothing is counted, checked or general. It draws what the frame draws, so its results agree
with the frame's up to rounding.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmbo_ray.data import Rows
from fedmbo_ray.rng import draw_seeds, fold, indices, stream


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
        rng, model, n, S = stream(self.seed, "round", k), self.model, self.n, self.S
        for _ in range(self.T):
            images, targets = model.batch("train", rng.integers(self.m, size=n), draw_seeds(rng, n), S)
            features = model.features(x, images)
            D, _ = model.residuals(y, features, targets)
            G = torch.cat([(D.T @ features).view(-1), D.sum(0)]).div_(n * S)
            y = y - self.beta * G.add_(y, alpha=self.regularization)

        images, targets = model.batch("validation", rng.integers(self.m, size=n), draw_seeds(rng, n), S)
        features = model.features(x, images)
        D, _ = model.residuals(y, features, targets)
        p = self.stacked(features, D, n).mul_(self.N / self.ell / S)
        depth = rng.integers(self.N, size=n)
        for l in range(1, self.N):
            active = np.flatnonzero(depth >= l)
            if not len(active):
                break
            count, chosen = len(active), torch.from_numpy(active)
            images, _ = model.batch("train", rng.integers(self.m, size=count), draw_seeds(rng, count), S)
            v = p[chosen]
            R = self.curvature(y, v, model.features(x, images))
            Hv = self.stacked(*R, count).div_(S).add_(v, alpha=self.regularization)
            p[chosen] = v.sub_(Hv, alpha=1 / self.ell)
        return x - self.alpha * self.through(rng, x, y, p), y

    def stacked(self, features: Tensor, D: Tensor, count: int) -> Tensor:
        """Of every slot, what D pulls back to y."""
        features, D = features.view(count, self.S, -1), D.view(count, self.S, -1)
        return torch.cat([(D.mT @ features).flatten(1), D.sum(1)], 1)

    def curvature(self, y: Tensor, v: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """The features, and (diag P − PPᵀ)u of every sample, u = v's logits."""
        V, c = self.model.head(v)
        W, b = self.model.head(y)
        P = torch.addmm(b[0], features, W.T).softmax(1)
        Pu = P * torch.baddbmm(c, features.view(len(v), self.S, -1), V.mT).flatten(0, 1)
        return features, Pu.sub_(P * Pu.sum(1, keepdim=True))

    def through(self, rng: Any, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        """The mean over slots of ∇_x f − ∇²_xy g·p_i."""
        model, n, S = self.model, self.n, self.S
        cohort, seeds = rng.integers(self.m, size=n), draw_seeds(rng, n)
        parts = [model.batch(split, cohort, fold(seeds, i), S) for i, split in enumerate(("validation", "train"))]
        images, targets = (torch.cat(both) for both in zip(*parts, strict=True))
        features = model.features(x, images)
        (W, _), (V, c) = model.head(y), model.head(p)
        D, P = model.residuals(y, features, targets)
        upper = D[: n * S] @ W
        Pu = P[n * S :] * torch.baddbmm(c, features[n * S :].view(n, S, -1), V.mT).flatten(0, 1)
        R = Pu.sub_(P[n * S :] * Pu.sum(1, keepdim=True))
        lower = torch.baddbmm((R @ W).view(n, S, -1), D[n * S :].view(n, S, -1), V).flatten(0, 1)
        pulled = torch.cat([upper, lower.neg_()]).mul_(features > 0).div_(n * S)
        return torch.cat([(pulled.T @ images).view(-1), pulled.sum(0)])


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
