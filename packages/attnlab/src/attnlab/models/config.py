"""Settings of every transformer here: one frozen config each, one comment per field."""

from dataclasses import dataclass
from typing import Literal

from attnlab.configs import Config, option
from attnlab.errors import WrongUsage
from attnlab.parts.blocks import NormPlace
from attnlab.parts.feed_forward import ActivationKind
from attnlab.parts.norms import NormKind
from attnlab.parts.projections import ProjectionKind

PositionKind = Literal["none", "sinusoidal", "learned", "concatenated", "rotary", "alibi"]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(Config):
    """The fields that encoder, decoder and encoder–decoder share."""

    vocab_size: int = option(32, "number of tokens", low=1, high=10_000_000)
    max_length: int = option(64, "longest input, in tokens", low=1, high=1_000_000)
    d_model: int = option(64, "width of the residual stream", low=1, high=65_536)
    num_heads: int = option(4, "attention heads; they divide d_model", low=1, high=4_096)
    num_kv_heads: int | None = option(
        None, "heads of keys and values; none: as many as num_heads", low=1, high=4_096
    )
    num_layers: int = option(1, "blocks", low=1, high=1_000)
    d_ff: int | None = option(
        None, "width inside the feed-forward part; none: 4 x d_model", low=1, high=1_048_576
    )
    activation: ActivationKind = option("relu", "between the feed-forward layers")
    norm: NormKind = option("layer", "which norm")
    norm_place: NormPlace = option("pre", "before a sub-layer, after its sum, or nowhere")
    final_norm: bool = option(True, "one more norm after the last block")
    positions: PositionKind = option("sinusoidal", "positional encoding")
    position_width: int | None = option(
        None, "width of concatenated positions; none: half of d_model", low=1
    )
    projections: ProjectionKind = option("dense", "how queries, keys and values are made")
    rank: int | None = option(
        None, "rank of factorized projections; none: the head's width", low=1, high=65_536
    )
    temperature: float = option(
        1.0, "of the softmax inside factorized projections", low=1e-3, high=1e3
    )
    bias: bool = option(True, "biases in projections and feed-forward")
    scale_embedding: bool = option(False, "multiply token embeddings by the root of their width")
    dropout: float = option(0.0, "probability of dropping, in training only", low=0.0, high=0.99)

    def validate(self) -> None:
        """Check what one field alone cannot tell."""
        if self.d_model % self.num_heads:
            raise WrongUsage(
                f"d_model must be a multiple of num_heads; got {self.d_model} and {self.num_heads}."
            )
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise WrongUsage(
                f"num_heads must be a multiple of num_kv_heads; got {self.num_heads} and "
                f"{self.num_kv_heads}."
            )
        if self.positions == "concatenated" and not 0 < self.concatenated_width < self.d_model:
            raise WrongUsage(
                "concatenated positions must leave room for the token: position_width must be "
                f"from 1 to {self.d_model - 1} (below d_model); got {self.concatenated_width}."
            )

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.d_model // self.num_heads

    @property
    def inner_width(self) -> int:
        """Width inside the feed-forward part."""
        return self.d_ff or 4 * self.d_model

    @property
    def concatenated_width(self) -> int:
        """Width of concatenated positions."""
        return self.position_width or self.d_model // 2

    @property
    def token_width(self) -> int:
        """Width of a token's own embedding: d_model, less what concatenated positions take."""
        if self.positions == "concatenated":
            return self.d_model - self.concatenated_width
        return self.d_model
