"""The encoder–decoder: a decoder that also looks at what an encoder has read (Vaswani et al. 2017,
figure 1)."""

from dataclasses import dataclass

from torch import Tensor, nn

from attnlab.configs import option
from attnlab.errors import WrongUsage
from attnlab.models.config import PositionKind, TransformerConfig, make_block
from attnlab.models.embedding import Embedding
from attnlab.models.encoder import check_real
from attnlab.parts.cache import Cache
from attnlab.parts.linear import Linear
from attnlab.parts.masks import Mask, as_tensor, both, real_positions
from attnlab.parts.norms import make_norm
from attnlab.sites import SitedModule


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(TransformerConfig):
    """An encoder and a decoder of the same width over one vocabulary; `positions` are the
    decoder's."""

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


class Stack(SitedModule):
    """An embedding, blocks and a final norm: one half of the model."""

    sites = ("embedding",)

    def __init__(
        self,
        config: EncoderDecoderConfig,
        num_layers: int,
        positions: PositionKind,
        *,
        is_decoder: bool,
    ) -> None:
        super().__init__()
        self.embedding = Embedding(config, positions=positions)
        self.layers = nn.ModuleList(
            make_block(config, positions=positions, with_cross_attention=is_decoder)
            for _ in range(num_layers)
        )
        self.final_norm = make_norm(config.norm, config.d_model) if config.final_norm else None

    def forward(
        self,
        tokens: Tensor,
        *,
        mask: Mask = None,
        real: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """(batch, length) -> (batch, length, d_model); `real` is False at padding, `mask` says all
        else."""
        offset = 0 if cache is None else cache.length
        mask = mask if real is None else check_real(real, tokens)
        if self.is_hooked and not offset:
            real = real_positions(mask, len(tokens))
        self.announce(tokens, offset, real)
        x = self.visit("embedding", self.embedding(tokens, offset))
        for index, layer in enumerate(self.layers):
            x = layer(
                x,
                mask=mask,
                memory=memory,
                memory_mask=memory_mask,
                cache=cache,
                name=f"layers.{index}",
            )
        if self.final_norm is not None:
            x = self.final_norm(x)
        return x


class EncoderDecoder(SitedModule):
    """Source and target tokens in, next-target-token logits out."""

    sites = ("logits",)

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config = config
        layers = (
            config.num_layers if config.num_encoder_layers is None else config.num_encoder_layers
        )
        self.encoder = Stack(
            config, layers, config.encoder_positions or config.positions, is_decoder=False
        )
        self.decoder = Stack(config, config.num_layers, config.positions, is_decoder=True)
        self.head = (
            None
            if config.tie_output
            else Linear(config.d_model, config.vocab_size, bias=config.bias)
        )

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
        """Predict from a memory; with a cache `target` holds only the new tokens."""
        if target.shape[0] != memory.shape[0]:
            raise WrongUsage(
                f"source and target must have the same batch size; got {memory.shape[0]} and "
                f"{target.shape[0]}."
            )
        allowed: Mask = "causal"
        if mask is not None:
            offset = 0 if cache is None else cache.length
            allowed = both(
                as_tensor("causal", target.shape[1], offset + target.shape[1], target.device), mask
            )
        x = self.decoder(target, mask=allowed, memory=memory, memory_mask=memory_mask, cache=cache)
        if cache is not None:
            cache.advance(target.shape[1])
        logits = self.decoder.embedding.read_out(x) if self.head is None else self.head(x)
        return self.visit("logits", logits)

    def conditioned(self, source: Tensor, *, real: Tensor | None = None) -> "Conditioned":
        """Read a source once, and return a predictor of the target for `generate`."""
        return Conditioned(self, self.encode(source, real=real), check_real(real, source))


class Conditioned:
    """An encoder–decoder that has read its source: to the eyes of generation, a decoder."""

    def __init__(self, model: EncoderDecoder, memory: Tensor, memory_mask: Tensor | None) -> None:
        self._model, self._memory, self._memory_mask = model, memory, memory_mask

    def __call__(self, tokens: Tensor, *, cache: Cache | None = None) -> Tensor:
        """(batch, length) -> logits (batch, length, vocabulary)."""
        return self._model.decode(tokens, self._memory, memory_mask=self._memory_mask, cache=cache)
