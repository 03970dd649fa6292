"""Stack: an embedding, blocks and a final norm, which every transformer here is made of."""

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.models.config import PositionKind, TransformerConfig
from attnlab.models.embedding import Embedding
from attnlab.parts.blocks import Block
from attnlab.parts.cache import Cache
from attnlab.parts.feed_forward import FeedForward
from attnlab.parts.heads import MultiHeadAttention, multi_head_attention
from attnlab.parts.linear import Linear
from attnlab.parts.masks import Mask, as_tensor, both, real_positions
from attnlab.parts.norms import make_norm
from attnlab.parts.positions import Alibi, Rotary
from attnlab.shapes import shape_text
from attnlab.sites import SitedModule


class Stack(SitedModule):
    """Tokens in, the residual stream out.

    num_layers and positions: None for those of the config, whose encoder may have others.
    """

    sites: tuple[str, ...] = ("embedding",)
    head_labels: Mapping[str, str] = MappingProxyType({})
    """What heads do, by their names ("0.1"); known of compiled programs, shown by pictures."""

    def __init__(
        self,
        config: TransformerConfig,
        *,
        num_layers: int | None = None,
        positions: PositionKind | None = None,
        with_cross_attention: bool = False,
    ) -> None:
        super().__init__()
        positions = positions or config.positions
        self.embedding = Embedding(config, positions=positions)
        self.layers = nn.ModuleList(
            _block(config, positions, with_cross_attention)
            for _ in range(num_layers or config.num_layers)
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
        offset = cache.length if cache is not None else 0
        if real is not None:
            mask = check_real(real, tokens)
        if self._installed:
            if not offset:
                real = real_positions(mask, len(tokens))
            self.announce(tokens, offset, real)
        x = self.visit("embedding", self.embedding(tokens, offset))
        options = {"mask": mask, "memory": memory, "memory_mask": memory_mask, "cache": cache}
        for index, layer in enumerate(self.layers):
            x = layer(x, name=f"layers.{index}", **options)
        final_norm = self.final_norm
        if final_norm is not None:
            x = final_norm(x)
        return x


def _block(config: TransformerConfig, positions: PositionKind, with_cross_attention: bool) -> Block:
    def attention(position: Rotary | Alibi | None) -> MultiHeadAttention:
        return multi_head_attention(
            config.d_model,
            config.num_heads,
            num_kv_heads=config.num_kv_heads,
            projections=config.projections,
            rank=config.rank or config.head_width,
            temperature=config.temperature,
            bias=config.bias,
            position=position,
            dropout=config.dropout,
        )

    position: Rotary | Alibi | None = None
    if positions == "rotary":
        position = Rotary()
    elif positions == "alibi":
        position = Alibi(config.num_heads)
    attention_position = attention(position)
    feed_forward = FeedForward(
        config.d_model,
        config.inner_width,
        activation=config.activation,
        bias=config.bias,
        dropout=config.dropout,
    )
    cross = attention(None) if with_cross_attention else None
    return Block(
        attention_position,
        feed_forward,
        d_model=config.d_model,
        cross_attention=cross,
        norm=config.norm,
        norm_place=config.norm_place,
        dropout=config.dropout,
    )


def output_head(config: TransformerConfig, *, is_tied: bool) -> Linear | None:
    """Make the layer from the stream to the vocabulary; None where the embedding reads it out."""
    if is_tied:
        return None
    return Linear(config.d_model, config.vocab_size, bias=config.bias)


def read_out(x: Tensor, head: Linear | None, embedding: Embedding) -> Tensor:
    """Turn the stream into logits, by a layer of its own or by the embedding."""
    if head is None:
        return embedding.read_out(x)
    logits: Tensor = head(x)
    return logits


def causal_for_new(tokens: Tensor, mask: Tensor | None, cache: Cache | None) -> Mask:
    """Allow each new token itself and what came before, as far as a mask allows it too."""
    if mask is None:
        return "causal"
    length = end = tokens.shape[1]
    if cache is not None:
        end += cache.length
    return both(as_tensor("causal", length, end, tokens.device), mask)


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
