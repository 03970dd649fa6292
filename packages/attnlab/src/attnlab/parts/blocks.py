"""A block: attention, then feed-forward, each added to the residual stream.

Where the norm stands is the choice: `pre` normalises what a sub-layer reads (Xiong et al. 2020),
`post` what the stream has become (Vaswani et al. 2017), `none` nothing. A block with
`cross_attention` is a decoder block that also looks at a memory.
"""

from typing import Literal

from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.parts.cache import Cache
from attnlab.parts.dropout import dropped
from attnlab.parts.feed_forward import FeedForward
from attnlab.parts.heads import MultiHeadAttention
from attnlab.parts.masks import Mask
from attnlab.parts.norms import NormKind, make_norm
from attnlab.shapes import require_choice
from attnlab.sites import SitedModule

NormPlace = Literal["pre", "post", "none"]


class Block(SitedModule):
    """One layer of a transformer, around parts that the caller provides.

    Args:
        attention: self-attention.
        feed_forward: what each position does by itself.
        cross_attention: attention to a memory, for decoder blocks; None for none.
        d_model: width of the residual stream.
        norm: which norm, and `norm_place` where: "pre", "post" or "none".
        dropout: probability of dropping a channel of what a sub-layer adds, in training only.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        *,
        d_model: int,
        cross_attention: MultiHeadAttention | None = None,
        norm: NormKind = "layer",
        norm_place: NormPlace = "pre",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        require_choice("norm_place", norm_place, NormPlace)
        self.norm_place = norm_place

        def make() -> nn.Module:
            if norm_place == "none":
                return nn.Identity()
            return make_norm(norm, d_model)

        self.norm_attention = make()
        self.attention = attention
        self.norm_cross_attention = make() if cross_attention is not None else None
        self.cross_attention = cross_attention
        self.norm_feed_forward = make()
        self.feed_forward = feed_forward
        self.dropout = dropout
        self.sites = ("residual_before", "residual_between", "residual_after")
        if cross_attention is not None:
            self.sites = (*self.sites[:2], "residual_after_cross", "residual_after")

    def forward(
        self,
        x: Tensor,
        *,
        mask: Mask = None,
        memory: Tensor | None = None,
        memory_mask: Mask = None,
        cache: Cache | None = None,
        name: str = "",
    ) -> Tensor:
        """(batch, length, d_model) -> the same.

        Args:
            x: the residual stream.
            mask: for self-attention.
            memory: (batch, key, d_model) for cross-attention, with its `memory_mask`.
            cache: of the whole model; `name` is this block's in it.
        """
        if self._installed:
            known = self.supplied("residual_after")
            if known is not None:
                return self.visit("residual_after", known)
            x = self.visit("residual_before", x)
        layer_cache = cache.layer(f"{name}.attention") if cache is not None else None
        read = self._read(x, self.norm_attention)
        attended = self.attention(read, mask=mask, cache=layer_cache).output
        x = self._add(x, attended, self.norm_attention)
        x = self.visit("residual_between", x)
        if self.cross_attention is not None and self.norm_cross_attention is not None:
            if memory is None:
                raise WrongUsage(
                    "a block with cross-attention needs a memory to look at; got none."
                )
            other = cache.layer(f"{name}.cross_attention") if cache is not None else None
            read = self._read(x, self.norm_cross_attention)
            attended = self.cross_attention(read, memory, mask=memory_mask, cache=other).output
            x = self._add(x, attended, self.norm_cross_attention)
            x = self.visit("residual_after_cross", x)
        read = self._read(x, self.norm_feed_forward)
        x = self._add(x, self.feed_forward(read), self.norm_feed_forward)
        return self.visit("residual_after", x)

    def _read(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Return what a sub-layer reads of the stream."""
        if self.norm_place == "pre":
            x = norm(x)
        return x

    def _add(self, x: Tensor, update: Tensor, norm: nn.Module) -> Tensor:
        """Add to the stream what a sub-layer computed."""
        if self.dropout:
            update = dropped(update, self.dropout, is_training=self.training)
        summed = x + update
        if self.norm_place == "post":
            summed = norm(summed)
        return summed
