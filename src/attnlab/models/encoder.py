"""The encoder: every position sees every other (Devlin et al. 2019); for classes, their mean is
read out.

Padding is left out twice: no query attends to it, and the mean does not count
it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlab.configs import option
from attnlab.errors import WrongUsage
from attnlab.models.config import TransformerConfig, make_block
from attnlab.models.embedding import Embedding
from attnlab.parts.linear import Linear
from attnlab.parts.norms import make_norm
from attnlab.shapes import shape_text
from attnlab.sites import SitedModule


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig):
    """An encoder, with classes to choose from or without."""

    num_classes: int | None = option(
        None, "classes to read out; none: one vector for each token", low=1, high=1_000_000
    )


class Encoder(SitedModule):
    """Tokens in, class logits (or one vector for each token) out."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.layers = nn.ModuleList(make_block(config) for _ in range(config.num_layers))
        self.final_norm = make_norm(config.norm, config.d_model) if config.final_norm else None
        self.head = (
            Linear(config.d_model, config.num_classes) if config.num_classes is not None else None
        )
        self.sites = ("embedding",) if self.head is None else ("embedding", "logits")

    def forward(self, tokens: Tensor, *, real: Tensor | None = None) -> Tensor:
        """Read: (batch, length) -> logits (batch, classes), or (batch, length, d_model) without
        classes.

        Args:
            tokens: ids.
            real: (batch, length) boolean, False at padding; None when all are real.
        """
        mask = check_real(real, tokens)
        self.announce(tokens, 0, real)
        x = self.visit("embedding", self.embedding(tokens))
        for layer in self.layers:
            x = layer(x, mask=mask)
        if self.final_norm is not None:
            x = self.final_norm(x)
        return x if self.head is None else self.visit("logits", self.head(_mean(x, real)))


def check_real(real: Tensor | None, tokens: Tensor) -> Tensor | None:
    """Turn "which tokens are real", (batch, length), into a mask (batch, 1, 1, key)."""
    if real is None:
        return None
    wanted = tokens.shape[:2]  # tokens made of several parts are real or not as a whole
    if real.shape != wanted or real.dtype != torch.bool:
        raise WrongUsage(
            f"real must be boolean of the tokens' shape {shape_text(wanted)}, False at padding; "
            f"got {shape_text(real.shape)} of {real.dtype}."
        )
    return real[:, None, None, :]


def _mean(x: Tensor, real: Tensor | None) -> Tensor:
    if real is None:
        return x.mean(-2)
    # An input of nothing but padding has no mean; it gets zeros, not NaN.
    kept = x.masked_fill(~real.unsqueeze(-1), 0.0)
    return kept.sum(-2) / real.sum(-1, keepdim=True).clamp(min=1)
