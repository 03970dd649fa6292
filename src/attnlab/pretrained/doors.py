"""Doors: parts without weights that stand for the attentions, blocks and stacks of a model that is not ours.

A tree of them is built beside the foreign model, under our names: `layers.3.attention`,
`decoder.layers.0.cross_attention`. So everything that stands at doors (recordings, edits, sweeps) works on them as on
our own parts. What passes a door is brought there by a seam, and goes on in the foreign model.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.parts.heads import HeadLayout
from attnlab.pretrained.passing import Foreign, pass_door
from attnlab.sites import SitedModule

__all__ = ["AttentionDoor", "BlockDoor", "FeedForwardDoor", "StackDoor"]


class AttentionDoor(SitedModule):
    """Stands for one attention of a foreign model.

    Args:
        sites: what can be seen here; not every seam shows all.
        seam: what brings its values: "registry", "sdpa", "softmax" or "multi-head".
        num_heads, num_kv_heads: heads that look, and heads that are looked at.
        is_cross: keys and values are of something else than the queries.

    `is_lazy` says whether weights can be made later from queries, keys and the mask; the check sets it.
    """

    is_lazy = False

    def __init__(
        self, sites: Sequence[str], *, seam: str, num_heads: int, num_kv_heads: int, is_cross: bool = False
    ) -> None:
        super().__init__()
        self.sites = tuple(sites)
        self.layout = HeadLayout(num_heads, num_kv_heads)
        self.seam, self.is_cross = seam, is_cross

    def forward(self, asked: Foreign) -> Tensor:
        """Compute one attention, everything of it shown here: what its heads gather, (batch, head, query, width)."""
        self.check_heads(asked.query.shape[1])
        return pass_door(self, asked, is_cross=self.is_cross, is_lazy=self.is_lazy)

    def check_heads(self, number: int) -> None:
        """Raise where somebody wants to look, and there are not as many heads as in the survey."""
        if number != self.layout.num_heads and self.wants(*self.sites):
            raise CouldNotRun(
                f"an attention of {self.layout.num_heads} heads has {number} in this pass, so that what was taken for "
                "its heads is something else (positions, or inputs): heads must be the second axis of what is given to "
                "the softmax or to scaled_dot_product_attention, (batch, head, query, key or width)."
            )

    def extra_repr(self) -> str:
        """Say what `print(model)` shows."""
        num_heads, num_kv_heads = self.layout
        shared = "" if num_heads == num_kv_heads else f" over {num_kv_heads}"
        return f"{num_heads} heads{shared}, seam {self.seam}"


class FeedForwardDoor(SitedModule):
    """Stands for the feed-forward part of a block."""

    sites = ("hidden", "output")


class BlockDoor(SitedModule):
    """Stands for one block: an attention, perhaps a cross-attention, a feed-forward part, the residual stream."""

    def __init__(self, sites: Sequence[str], parts: dict[str, SitedModule]) -> None:
        super().__init__()
        self.sites = tuple(sites)
        for name, part in parts.items():
            self.add_module(name, part)


class StackDoor(SitedModule):
    """Stands for a stack of blocks that reads one text: an encoder, a decoder.

    called: the foreign model's module that runs it, where there is one.
    """

    sites = ("embedding",)

    def __init__(self, layers: Sequence[BlockDoor], called: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self._called = (called,)  # in a tuple, so that it is no part of this one

    @property
    def entrance(self) -> nn.Module:
        """The module of the foreign model that this stands for."""
        return self._called[0] or self
