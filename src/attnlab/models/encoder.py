"""The encoder: every position sees every other (Devlin et al. 2019); for classes, their mean is
read out.

Padding is left out twice: no query attends to it, and the mean does not count it.
"""

from dataclasses import dataclass

from torch import Tensor

from attnlab.configs import option
from attnlab.models.config import TransformerConfig
from attnlab.models.stack import Stack
from attnlab.parts.linear import Linear


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig):
    """An encoder, with classes to choose from or without."""

    num_classes: int | None = option(
        None, "classes to read out; none: one vector for each token", low=1, high=1_000_000
    )


class Encoder(Stack):
    """Tokens in, class logits (or one vector for each token) out."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.config = config
        self.head: Linear | None = None
        if config.num_classes is not None:
            self.head = Linear(config.d_model, config.num_classes)
            self.sites = ("embedding", "logits")

    def forward(  # type: ignore[override]
        self, tokens: Tensor, *, real: Tensor | None = None
    ) -> Tensor:
        """Read: (batch, length) -> logits (batch, classes), or (batch, length, d_model) without
        classes.

        Args:
            tokens: ids.
            real: (batch, length) boolean, False at padding; None when all are real.
        """
        x = super().forward(tokens, real=real)
        return x if self.head is None else self.visit("logits", self.head(_mean(x, real)))


def _mean(x: Tensor, real: Tensor | None) -> Tensor:
    if real is None:
        return x.mean(-2)
    # An input of nothing but padding has no mean; it gets zeros, not NaN.
    kept = x.masked_fill(~real.unsqueeze(-1), 0.0)
    return kept.sum(-2) / real.sum(-1, keepdim=True).clamp(min=1)
