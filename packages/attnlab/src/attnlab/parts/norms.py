"""Normalization: bring each position's vector to a common size, by PyTorch's fused kernels.

Layer norm (Ba et al. 2016) is `(x - mean) / √(variance + ε) · gain + bias` over the last axis, with
the biased variance (divided by the width); RMS norm (Zhang & Sennrich 2019) is
`x / √(mean of squares + ε) · gain`.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.shapes import require_choice

NormKind = Literal["layer", "rms"]


class LayerNorm(nn.Module):
    """Layer norm with a gain (`weight`) and a bias."""

    def __init__(self, d_model: int, *, epsilon: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> the same."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class RMSNorm(nn.Module):
    """RMS norm with a gain (`weight`)."""

    def __init__(self, d_model: int, *, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> the same."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


def make_norm(kind: NormKind, d_model: int) -> LayerNorm | RMSNorm:
    """Make a norm by its kind."""
    require_choice("norm", kind, NormKind)
    if kind == "layer":
        return LayerNorm(d_model)
    return RMSNorm(d_model)
