"""Normalization: bring each position's vector to a common size.

`layer_norm` and `rms_norm` are the formulas, written out. The modules run PyTorch's fused kernels
of the same formulas (a test holds the two together), because a norm written out costs five passes
over the data.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.shapes import require_choice

NormKind = Literal["layer", "rms"]


def layer_norm(
    x: Tensor, gain: Tensor | None = None, bias: Tensor | None = None, *, epsilon: float = 1e-5
) -> Tensor:
    """`(x - mean) / √(variance + ε) · gain + bias` over the last axis (Ba et al. 2016).

    The variance is the biased one (divided by the width), and ε stands inside the root, as in
    PyTorch.
    """
    centered = x - x.mean(-1, keepdim=True)
    variance = centered.square().mean(-1, keepdim=True)
    normed = centered / (variance + epsilon).sqrt()
    if gain is not None:
        normed = normed * gain
    if bias is not None:
        normed = normed + bias
    return normed


def rms_norm(x: Tensor, gain: Tensor | None = None, *, epsilon: float = 1e-6) -> Tensor:
    """`x / √(mean of squares + ε) · gain` over the last axis (Zhang & Sennrich 2019)."""
    normed = x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt()
    if gain is not None:
        normed = normed * gain
    return normed


class LayerNorm(nn.Module):
    """Layer norm with a gain (`weight`) and a bias."""

    def __init__(self, d_model: int, *, epsilon: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> the same."""
        weight = self.weight
        return F.layer_norm(x, weight.shape, weight, self.bias, self.epsilon)


class RMSNorm(nn.Module):
    """RMS norm with a gain (`weight`)."""

    def __init__(self, d_model: int, *, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> the same."""
        weight = self.weight
        return F.rms_norm(x, weight.shape, weight, self.epsilon)


def make_norm(kind: NormKind, d_model: int) -> LayerNorm | RMSNorm:
    """Make a norm by its kind."""
    require_choice("norm", kind, NormKind)
    if kind == "layer":
        return LayerNorm(d_model)
    return RMSNorm(d_model)
