"""The feed-forward part: each position by itself goes through a wider layer and back.

`activation(x W_inner) W_outer` (Vaswani et al. 2017, §3.3), with ReLU or GELU (Hendrycks & Gimpel
2016); or SwiGLU, `(silu(x W_gate) · x W_inner) W_outer` (Shazeer 2020).
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.parts.dropout import dropped
from attnlab.parts.linear import Linear
from attnlab.shapes import require_choice
from attnlab.sites import SitedModule

ActivationKind = Literal["relu", "gelu", "swiglu"]


class FeedForward(SitedModule):
    """Two layers (three for SwiGLU) on each position: `inner`, `outer` and, for SwiGLU, `gate`."""

    sites = ("hidden", "output")

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: ActivationKind = "relu",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        require_choice("activation", activation, ActivationKind)
        self.activation = activation
        self.gate = Linear(d_model, d_ff, bias=bias) if activation == "swiglu" else None
        self.inner = Linear(d_model, d_ff, bias=bias)
        self.outer = Linear(d_ff, d_model, bias=bias)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """(..., length, d_model) -> the same."""
        layer = self.inner
        inner = layer(x)
        if self.gate is not None:
            hidden = F.silu(self.gate(x)) * inner
        else:
            # `inner` is the largest tensor of a pass; where it is not needed again, its place is
            # taken.
            is_free = not (torch.is_grad_enabled() or layer._forward_hooks)
            hidden = _activated(inner, self.activation, in_place=is_free)
        hidden = self.visit("hidden", hidden)
        if self.dropout:
            hidden = dropped(hidden, self.dropout, is_training=self.training)
        return self.visit("output", self.outer(hidden))

    def extra_repr(self) -> str:
        """Return the settings that printing the module shows."""
        return f"activation={self.activation}"


def _activated(inner: Tensor, activation: ActivationKind, *, in_place: bool) -> Tensor:
    if activation == "relu":
        return F.relu(inner, inplace=in_place)
    if not in_place:
        return F.gelu(inner)
    activated: Tensor = torch.ops.aten.gelu_(inner)
    return activated
