"""A linear softmax classifier on top of features, with its derivatives in closed form."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fedmbo_ray.data.batches import Batch


@dataclass(frozen=True)
class SoftmaxHead:
    """Σ_j w_j·CE(φ_j; y) + (λ/2)‖y‖² with y = (W, b), logits z_j = Wφ_j + b, and P_j = softmax(z_j).

    Of a batch it takes the features φ of shape (..., S, h) as `inputs`, and the weights w of its samples.
    Leading axes of a batch are slots, each with a loss; y has the same axes or, if all share it, none.
    """

    num_features: int  # h
    num_classes: int
    regularization: float = 0.0  # λ

    def logits(self, y: Tensor, features: Tensor) -> Tensor:
        W, b = self.weights(y), y[..., -self.num_classes :]
        return linear(features, W, b) if y.dim() == 1 else features @ W.mT + b.unsqueeze(-2)

    def loss(self, y: Tensor, batch: Batch) -> Tensor:
        losses = cross_entropies(self.logits(y, batch.inputs), batch.targets)
        return batch.mean(losses) + 0.5 * self.regularization * y.square().sum(-1)

    def model(self, y: Tensor) -> nn.Linear:
        """The layer that y makes: features to logits."""
        layer = nn.Linear(self.num_features, self.num_classes)
        layer.weight.data, layer.bias.data = self.weights(y).clone(), y[-self.num_classes :].clone()
        return layer

    def at(self, y: Tensor, batch: Batch) -> "SoftmaxAt":
        return SoftmaxAt(self, y, batch)

    def weights(self, y: Tensor) -> Tensor:
        """W."""
        return y[..., : -self.num_classes].unflatten(-1, (self.num_classes, self.num_features))


@dataclass
class SoftmaxAt:
    """The derivatives at one y on one batch; what several of them need is computed once."""

    head: SoftmaxHead
    y: Tensor
    batch: Batch

    def gradient(self) -> Tensor:
        """∇_y: the pull-back of w_j(P_j − e_j) to y, + λy."""
        return self._pulled_back(self.residuals, self.y)

    def product(self, v: Tensor) -> Tensor:
        """∇²_yy·v: the pull-back of w_j(diag P_j − P_jP_jᵀ)u_j to y with u_j = Vφ_j + c for v = (V, c), + λv."""
        return self._pulled_back(self._curved(self._logits(v)), v)

    def pulled(self) -> list[tuple[Tensor, Tensor]]:
        """In φ, w_jWᵀ(P_j − e_j), and in w, CE_j; whichever depends on x."""
        pulled = []
        if self.batch.inputs.requires_grad:
            pulled.append((self.batch.inputs, self.residuals @ self.head.weights(self.y)))
        if self.batch.weights.requires_grad:
            pulled.append((self.batch.weights, cross_entropies(self._logits(self.y), self.batch.targets)))
        return pulled

    def pulled_slope(self, v: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The same of ⟨∇_y, v⟩ = Σ_j w_j(P_j − e_j)·u_j + λ⟨y, v⟩."""
        u, pulled = self._logits(v), []
        if self.batch.inputs.requires_grad:
            through = self.residuals @ self.head.weights(v) + self._curved(u) @ self.head.weights(self.y)
            pulled.append((self.batch.inputs, through))
        if self.batch.weights.requires_grad:
            own = u.gather(-1, self.batch.targets.unsqueeze(-1)).squeeze(-1)
            pulled.append((self.batch.weights, (self.P * u).sum(-1) - own))
        return pulled

    @cached_property
    def P(self) -> Tensor:
        return softmax(self._logits(self.y))

    @cached_property
    def residuals(self) -> Tensor:
        """w_j(P_j − e_j), e_j the unit vector of sample j's class."""
        w = self.batch.weights.unsqueeze(-1)
        return (self.P * w).scatter_add(-1, self.batch.targets.unsqueeze(-1), -w)

    def _logits(self, y: Tensor) -> Tensor:
        return self.head.logits(y, self.batch.inputs)

    def _curved(self, u: Tensor) -> Tensor:
        """w_j(diag P_j − P_jP_jᵀ)u_j."""
        Pu = self.P * u * self.batch.weights.unsqueeze(-1)
        return Pu - self.P * Pu.sum(-1, keepdim=True)

    def _pulled_back(self, D: Tensor, y: Tensor) -> Tensor:
        """The gradient in y of Σ_j D_j·z_j(y) + (λ/2)‖y‖²."""
        gradient = torch.cat([(D.mT @ self.batch.inputs).flatten(-2), D.sum(-2)], -1)
        return torch.add(gradient, y, alpha=self.head.regularization) if self.head.regularization else gradient


def softmax(logits: Tensor) -> Tensor:
    """The softmax on the last axis; for few classes, torch's own function takes four times as long."""
    powers = (logits - logits.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def cross_entropies(logits: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of each sample; any number of leading axes."""
    return logits.logsumexp(-1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def prediction_metrics(predictions: Tensor, targets: Tensor) -> dict[str, float]:
    """The figures of predictions, which are logits if targets are labels, otherwise numbers."""
    if not targets.is_floating_point():
        return classification_metrics(predictions, targets)
    squares = (predictions.flatten() - targets).square()
    variance = targets.var(correction=0)
    return {"test_rmse": float(squares.mean().sqrt()), "test_r2": float(1 - squares.mean() / variance)}


def classification_metrics(logits: Tensor, targets: Tensor) -> dict[str, float]:
    accuracy = (logits.argmax(1) == targets).double().mean()
    return {"test_loss": float(cross_entropies(logits, targets).mean()), "test_accuracy": float(accuracy)}
