"""The encoder–decoder: a decoder that also looks at what an encoder has read (Vaswani et al. 2017,
figure 1)."""

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from attnlab.configs import option
from attnlab.display import Card, displayed
from attnlab.errors import WrongUsage
from attnlab.models.card import model_card
from attnlab.models.config import PositionKind, TransformerConfig
from attnlab.models.generation import Predictor
from attnlab.models.stack import Stack, causal_for_new, check_real, output_head, read_out
from attnlab.parts.cache import Cache
from attnlab.sites import SitedModule


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(TransformerConfig):
    """The settings of an encoder and a decoder of the same width over one vocabulary; `positions`
    are the decoder's."""

    num_encoder_layers: int | None = option(
        None, "blocks of the encoder; none: as many as num_layers", low=1, high=1_000
    )
    encoder_positions: PositionKind | None = option(
        None, "positions of the encoder; unset: as the decoder's"
    )
    tie_output: bool = option(False, "read the output out with the decoder's token embedding")

    def validate(self) -> None:
        """Check what one field alone cannot tell."""
        super().validate()
        if self.encoder_positions == "concatenated" and self.positions != "concatenated":
            raise WrongUsage(
                "encoder_positions=concatenated needs positions=concatenated too (they share "
                f"position_width); got positions={self.positions}."
            )


@displayed
class EncoderDecoder(SitedModule):
    """An encoder–decoder: source and target tokens in, next-target-token logits out."""

    sites = ("logits",)

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Stack(
            config, num_layers=config.num_encoder_layers, positions=config.encoder_positions
        )
        self.decoder = Stack(config, with_cross_attention=True)
        self.head = output_head(config, is_tied=config.tie_output)

    def _card(self) -> Card:
        return model_card(self)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        real: Tensor | None = None,
        target_mask: Tensor | None = None,
    ) -> Tensor:
        """Predict: source (batch, length), target (batch, length) -> logits (batch, target length,
        vocabulary).

        Args:
            source: ids that the encoder reads.
            target: ids that the decoder has so far.
            real: (batch, source length) boolean, False at the source's padding.
            target_mask: boolean, True = may attend, on top of causality.
        """
        memory = self.encode(source, real=real)
        return self.decode(target, memory, memory_mask=check_real(real, source), mask=target_mask)

    def encode(self, source: Tensor, *, real: Tensor | None = None) -> Tensor:
        """Read the source: (batch, length) -> memory (batch, length, d_model)."""
        memory: Tensor = self.encoder(source, real=real)
        return memory

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        *,
        memory_mask: Tensor | None = None,
        mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Predict from a memory; with a cache `target` holds only the new tokens.

        target (batch, length) · memory (batch, source length, d_model) · memory_mask, mask: what
        the target may see of the source and of itself, broadcast to (batch, head, query, key) ->
        logits (batch, length, vocabulary).
        """
        if target.shape[0] != memory.shape[0]:
            raise WrongUsage(
                f"source and target differ in batch size: {memory.shape[0]} and {target.shape[0]}."
            )
        allowed = causal_for_new(target, mask, cache)
        x = self.decoder(target, mask=allowed, memory=memory, memory_mask=memory_mask, cache=cache)
        if cache is not None:
            cache.advance(target.shape[1])
        return self.visit("logits", read_out(x, self.head, self.decoder.embedding))

    def conditioned(self, source: Tensor, *, real: Tensor | None = None) -> Predictor:
        """Read a source (batch, length), and return a predictor of the target for `generate`."""
        memory_mask = check_real(real, source)
        return partial(self.decode, memory=self.encode(source, real=real), memory_mask=memory_mask)
