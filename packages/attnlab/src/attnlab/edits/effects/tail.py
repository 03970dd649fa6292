"""The last positions alone: a decoder's last block and logits skip all other positions."""

from dataclasses import dataclass

from torch import Tensor, nn

from attnlab.edits.effects.baseline import Baseline
from attnlab.models.decoder import Decoder
from attnlab.parts.attend import attend
from attnlab.parts.blocks import Block
from attnlab.parts.heads import share_heads, split_heads
from attnlab.parts.positions import Rotary


@dataclass(frozen=True, eq=False)
class Tail:
    """The last block, computed for the last positions alone.

    block: the module. enters, leaves, heads: the sites of its input, of its output and of its
    heads' outputs. num_last: the number of positions. mask: for these, as `attend` takes it.
    """

    block: Block
    enters: str
    leaves: str
    heads: str
    num_last: int
    mask: Tensor | str | None

    def attended(self, x: Tensor) -> Tensor:
        """Return the heads' outputs at the last positions: the stream (batch, length, d_model) ->
        (batch, head, last, width).

        Keys and values are made for all positions, queries for the last ones only.
        """
        attention = self.block.attention
        read = self.block.norm_attention(x) if self.block.norm_place == "pre" else x
        num_heads, num_kv_heads = attention.layout
        query = split_heads(attention.query(read[:, -self.num_last :]), num_heads)
        key = split_heads(attention.key(read), num_kv_heads)
        value = split_heads(attention.value(read), num_kv_heads)
        if isinstance(attention.position, Rotary):
            query = attention.position(query, x.shape[1] - self.num_last)
            key = attention.position(key)
        key, value = share_heads(key, num_heads), share_heads(value, num_heads)
        mask = self.mask  # of the plain pass, which holds biases of position already
        return attend(query, key, value, mask, scale=attention.scale, need_weights=False).output  # type: ignore[arg-type]


def find_tail(
    model: nn.Module, baseline: Baseline, num_last: int | None, times: int, site: str
) -> Tail | None:
    """Return the tail of the last block for copies of all rows, or None if it must stay whole.

    Only a decoder has one: its output at a position depends on that position's stream alone. A
    change at another site of that block keeps the block whole.
    """
    if not isinstance(model, Decoder) or num_last is None or baseline.length <= num_last:
        return None
    last = len(model.layers) - 1
    block, path = model.layers[last], f"layers.{last}"
    if not isinstance(block, Block) or block.cross_attention is not None:
        return None
    enters = f"layers.{last - 1}.residual_after" if last else "embedding"
    heads, leaves = f"{path}.attention.heads", f"{path}.residual_after"
    if site.startswith(f"{path}.") and site not in (heads, leaves):
        return None
    mask = _last_of(baseline.masks[f"{path}.attention"], num_last, times)
    return Tail(block, enters, leaves, heads, num_last, mask)


def _last_of(mask: Tensor | str | None, num_last: int, times: int) -> Tensor | str | None:
    """Return the mask of the last queries, for copies of all rows."""
    if not isinstance(mask, Tensor):
        return mask
    if mask.shape[-2] > 1:
        mask = mask[..., -num_last:, :]
    if mask.dim() == 4 and mask.shape[0] > 1:
        mask = mask.unsqueeze(0).expand(times, *mask.shape).flatten(0, 1)
    return mask
