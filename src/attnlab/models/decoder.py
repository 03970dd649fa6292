"""The decoder: each position sees itself and what came before, and predicts the next token (Radford
et al. 2018)."""

from dataclasses import dataclass

from torch import Tensor, nn

from attnlab.configs import option
from attnlab.models.config import TransformerConfig, make_block
from attnlab.models.embedding import Embedding
from attnlab.parts.cache import Cache
from attnlab.parts.linear import Linear
from attnlab.parts.masks import Mask, as_tensor, both, real_positions
from attnlab.parts.norms import make_norm
from attnlab.sites import SitedModule


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(TransformerConfig):
    """A decoder-only language model."""

    tie_output: bool = option(True, "read the output out with the token embedding")


class Decoder(SitedModule):
    """Tokens in, next-token logits out."""

    sites = ("embedding", "logits")

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.layers = nn.ModuleList(make_block(config) for _ in range(config.num_layers))
        self.final_norm = make_norm(config.norm, config.d_model) if config.final_norm else None
        self.head = (
            None
            if config.tie_output
            else Linear(config.d_model, config.vocab_size, bias=config.bias)
        )

    def forward(
        self, tokens: Tensor, *, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Predict: (batch, length) -> logits (batch, length, vocabulary).

        Args:
            tokens: ids; with a cache only the new ones.
            mask: boolean, True = may attend, on top of causality; such as a `padding_mask`.
            cache: keys and values of earlier tokens; it is advanced.
        """
        offset = 0 if cache is None else cache.length
        knows_padding = self.is_hooked and not offset
        self.announce(tokens, offset, real_positions(mask, len(tokens)) if knows_padding else None)
        x = self.visit("embedding", self.embedding(tokens, offset))
        allowed: Mask = "causal"
        if mask is not None:
            allowed = both(
                as_tensor("causal", tokens.shape[1], offset + tokens.shape[1], tokens.device), mask
            )
        for index, layer in enumerate(self.layers):
            x = layer(x, mask=allowed, cache=cache, name=f"layers.{index}")
        if cache is not None:
            cache.advance(tokens.shape[1])
        if self.final_norm is not None:
            x = self.final_norm(x)
        logits = self.embedding.read_out(x) if self.head is None else self.head(x)
        return self.visit("logits", logits)
