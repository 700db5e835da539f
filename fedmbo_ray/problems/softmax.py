"""A linear softmax classifier on top of features, with its derivatives in closed form."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from fedmbo_ray.data import Batch


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
        W, b = self._weights(y), y[..., -self.num_classes :]
        return linear(features, W, b) if y.dim() == 1 else features @ W.mT + b.unsqueeze(-2)

    def loss(self, y: Tensor, batch: Batch) -> Tensor:
        losses = cross_entropies(self.logits(y, batch.inputs), batch.targets)
        return batch.mean(losses) + 0.5 * self.regularization * y.square().sum(-1)

    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        """∇_y: the pull-back of w_j(P_j − e_j) to y, + λy."""
        return self._pulled_back(self._residuals(y, batch), batch.inputs, y)

    def product(self, y: Tensor, v: Tensor, batch: Batch) -> Tensor:
        """∇²_yy·v: the pull-back of w_j(diag P_j − P_jP_jᵀ)u_j to y with u_j = Vφ_j + c for v = (V, c), + λv."""
        P, u = self.logits(y, batch.inputs).softmax(-1), self.logits(v, batch.inputs)
        return self._pulled_back(curved(P, u, batch), batch.inputs, v)

    def pulled(self, y: Tensor, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """In φ, w_jWᵀ(P_j − e_j), and in w, CE_j; whichever depends on x."""
        pulled = []
        if batch.inputs.requires_grad:
            pulled.append((batch.inputs, self._residuals(y, batch) @ self._weights(y)))
        if batch.weights.requires_grad:
            pulled.append((batch.weights, cross_entropies(self.logits(y, batch.inputs), batch.targets)))
        return pulled

    def pulled_slope(self, y: Tensor, v: Tensor, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """The same of ⟨∇_y, v⟩ = Σ_j w_j(P_j − e_j)·u_j + λ⟨y, v⟩."""
        P, u = self.logits(y, batch.inputs).softmax(-1), self.logits(v, batch.inputs)
        pulled = []
        if batch.inputs.requires_grad:
            through = residuals(P, batch) @ self._weights(v) + curved(P, u, batch) @ self._weights(y)
            pulled.append((batch.inputs, through))
        if batch.weights.requires_grad:
            pulled.append((batch.weights, (P * u).sum(-1) - u.gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1)))
        return pulled

    def _weights(self, y: Tensor) -> Tensor:
        """W."""
        return y[..., : -self.num_classes].unflatten(-1, (self.num_classes, self.num_features))

    def _residuals(self, y: Tensor, batch: Batch) -> Tensor:
        return residuals(self.logits(y, batch.inputs).softmax(-1), batch)

    def _pulled_back(self, D: Tensor, features: Tensor, y: Tensor) -> Tensor:
        """The gradient in y of Σ_j D_j·z_j(y) + (λ/2)‖y‖²."""
        gradient = torch.cat([(D.mT @ features).flatten(-2), D.sum(-2)], -1)
        return torch.add(gradient, y, alpha=self.regularization) if self.regularization else gradient


def residuals(P: Tensor, batch: Batch) -> Tensor:
    """w_j(P_j − e_j), e_j the unit vector of sample j's class."""
    w = batch.weights.unsqueeze(-1)
    return (P * w).scatter_add(-1, batch.targets.unsqueeze(-1), -w)


def curved(P: Tensor, u: Tensor, batch: Batch) -> Tensor:
    """w_j(diag P_j − P_jP_jᵀ)u_j."""
    Pu = P * u * batch.weights.unsqueeze(-1)
    return Pu - P * Pu.sum(-1, keepdim=True)


def cross_entropies(logits: Tensor, targets: Tensor) -> Tensor:
    """Of each sample, on any number of leading axes."""
    return logits.logsumexp(-1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def classification_metrics(logits: Tensor, targets: Tensor) -> dict[str, float]:
    accuracy = (logits.argmax(1) == targets).double().mean()
    return {"test_loss": float(cross_entropies(logits, targets).mean()), "test_accuracy": float(accuracy)}
