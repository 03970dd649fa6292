"""Hook points: parts without weights that represent the attentions, blocks and stacks of a foreign
model.

A tree of them is built beside the foreign model, under our names: `layers.3.attention`,
`decoder.layers.0.cross_attention`. So recordings, edits and sweeps work on them as on our own
parts. A backend brings the foreign model's values to a hook point and takes the result back.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.parts.heads import HeadLayout
from attnlab.pretrained.attention_call import ForeignAttention, hooked_attention
from attnlab.sites import SitedModule

__all__ = ["AttentionPoint", "BlockPoint", "FeedForwardPoint", "StackPoint"]


class AttentionPoint(SitedModule):
    """The hook point of one attention in a foreign model.

    Args:
        sites: the sites that the backend shows.
        backend: how the attention reaches the hook point: "registry", "sdpa", "softmax" or
            "multi-head".
        num_heads, num_kv_heads: heads of the queries, and of the keys and values.
        is_cross: keys and values come from another sequence than the queries.

    `is_lazy` says whether weights can be computed later from queries, keys and the mask;
    verification sets it.
    """

    is_lazy = False

    def __init__(
        self,
        sites: Sequence[str],
        *,
        backend: str,
        num_heads: int,
        num_kv_heads: int,
        is_cross: bool = False,
    ) -> None:
        super().__init__()
        self.sites = tuple(sites)
        self.layout = HeadLayout(num_heads, num_kv_heads)
        self.backend, self.is_cross = backend, is_cross

    def forward(self, asked: ForeignAttention) -> Tensor:
        """Compute one attention; return its heads' outputs, (batch, head, query, width)."""
        self.check_heads(asked.query.shape[1])
        return hooked_attention(self, asked, is_cross=self.is_cross, is_lazy=self.is_lazy)

    def check_heads(self, number: int) -> None:
        """Raise if a hook is installed and the number of heads is not the one that was traced."""
        if number != self.layout.num_heads and self.wants(*self.sites):
            raise CouldNotRun(
                f"an attention of {self.layout.num_heads} heads has {number} in this pass, so "
                "what was taken for its heads is something else (positions, or inputs): "
                "heads must be the second axis of the input of the softmax or of "
                "scaled_dot_product_attention, (batch, head, query, key or width)."
            )

    def extra_repr(self) -> str:
        """Return the text of this part in `print(model)`."""
        num_heads, num_kv_heads = self.layout
        shared = "" if num_heads == num_kv_heads else f" over {num_kv_heads}"
        return f"{num_heads} heads{shared}, backend {self.backend}"


class FeedForwardPoint(SitedModule):
    """The hook point of a block's feed-forward part."""

    sites = ("hidden", "output")


class BlockPoint(SitedModule):
    """The hook point of one block: an attention, perhaps a cross-attention, a feed-forward part,
    the residual stream."""

    def __init__(self, sites: Sequence[str], parts: dict[str, SitedModule]) -> None:
        super().__init__()
        self.sites = tuple(sites)
        for name, part in parts.items():
            self.add_module(name, part)


class StackPoint(SitedModule):
    """The hook point of a stack of blocks that reads one sequence: an encoder, a decoder.

    called: the foreign model's module that runs it, if there is one.
    """

    sites = ("embedding",)

    def __init__(self, layers: Sequence[BlockPoint], called: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self._called = (called,)  # in a tuple, so that it is no submodule of this one

    @property
    def entrance(self) -> nn.Module:
        """The module of the foreign model that runs the stack."""
        return self._called[0] or self
