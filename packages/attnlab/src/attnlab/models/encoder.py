"""The encoder: every position sees every other (Devlin et al. 2019), or with `causal` those before;
for classes, their mean is read out, or with `per_token` each by itself.

Padding is left out twice: no query attends to it, and the mean does not count it.
"""

from dataclasses import dataclass

from torch import Tensor

from attnlab.configs import option
from attnlab.display import Card, displayed
from attnlab.errors import WrongUsage
from attnlab.models.card import model_card
from attnlab.models.config import TransformerConfig
from attnlab.models.stack import Stack, causal_for_new, check_real
from attnlab.parts.linear import Linear


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig):
    """The settings of an encoder, with classes to choose from or without."""

    num_classes: int | None = option(
        None, "classes to read out; none: one vector for each token", low=1, high=1_000_000
    )
    per_token: bool = option(False, "classes for each token, rather than for the whole input")
    causal: bool = option(False, "each position sees itself and what came before")

    def validate(self) -> None:
        """Check what one field alone cannot tell."""
        super().validate()
        if self.per_token and self.num_classes is None:
            raise WrongUsage("per_token reads classes out of each token; give num_classes.")


@displayed
class Encoder(Stack):
    """An encoder: tokens in, class logits (or one vector for each token) out."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.config = config
        self.head: Linear | None = None
        if config.num_classes is not None:
            self.head = Linear(config.d_model, config.num_classes)
            self.sites = ("embedding", "logits")

    def _card(self) -> Card:
        return model_card(self)

    def forward(  # type: ignore[override]
        self, tokens: Tensor, *, real: Tensor | None = None
    ) -> Tensor:
        """Read: (batch, length) -> logits (batch, classes), of each token (batch, length, classes),
        or without classes (batch, length, d_model).

        Args:
            tokens: ids.
            real: (batch, length) boolean, False at padding; None when all are real.
        """
        if self.config.causal:
            x = super().forward(tokens, mask=causal_for_new(tokens, check_real(real, tokens), None))
        else:
            x = super().forward(tokens, real=real)
        if self.head is None:
            return x
        if not self.config.per_token:
            x = _mean(x, real)
        return self.visit("logits", self.head(x))


def _mean(x: Tensor, real: Tensor | None) -> Tensor:
    if real is None:
        return x.mean(-2)
    # An input of nothing but padding has no mean; it gets zeros, not NaN.
    kept = x.masked_fill(~real.unsqueeze(-1), 0.0)
    return kept.sum(-2) / real.sum(-1, keepdim=True).clamp(min=1)
