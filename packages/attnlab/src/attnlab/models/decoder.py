"""The decoder: each position sees itself and what came before, and predicts the next token (Radford
et al. 2018)."""

from dataclasses import dataclass

from torch import Tensor

from attnlab.configs import option
from attnlab.display import Card, displayed
from attnlab.models.card import model_card
from attnlab.models.config import TransformerConfig
from attnlab.models.stack import Stack, causal_for_new, output_head, read_out
from attnlab.parts.cache import Cache


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(TransformerConfig):
    """The settings of a decoder-only language model."""

    tie_output: bool = option(True, "read the output out with the token embedding")


@displayed
class Decoder(Stack):
    """A decoder-only language model: tokens in, next-token logits out."""

    sites = ("embedding", "logits")

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.config = config
        self.head = output_head(config, is_tied=config.tie_output)

    def _card(self) -> Card:
        return model_card(self)

    def last_alone(self, number: int) -> dict[str, int]:
        """Return the options that restrict the logits to the last positions."""
        return {"num_last": number}

    def forward(  # type: ignore[override]
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        cache: Cache | None = None,
        num_last: int | None = None,
    ) -> Tensor:
        """Predict: (batch, length) -> logits (batch, length, vocabulary).

        Args:
            tokens: ids; with a cache only the new ones.
            mask: boolean, True = may attend, on top of causality; such as a `padding_mask`.
            cache: keys and values of earlier tokens; it is advanced.
            num_last: how many positions to give logits of, counted from the end; None for all.
        """
        x = super().forward(tokens, mask=causal_for_new(tokens, mask, cache), cache=cache)
        if cache is not None:
            cache.advance(tokens.shape[1])
        if num_last is not None:
            x = x[:, -num_last:]
        return self.visit("logits", read_out(x, self.head, self.embedding))
